//! Functions compiled once per instruction set; the best version is chosen at run time.
//!
//! Nothing in them asks for an instruction set: they are plain loops that the compiler turns into vector instructions.
//! It may neither reorder nor contract floating-point operations, so that every version gives the same bits. Functions
//! that they call must be inlined, because they are not compiled again otherwise.

/// Defines a function that is compiled for AVX-512, for AVX2, and for the baseline of the target.
///
/// # Safety
///
/// The only unsafe calls are to a version whose instructions the processor has, after the check that it has them.
macro_rules! vectorised {
    (
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident $(<$($generic:ident: $bound:path),+>)?
        ($($argument:ident: $type:ty),* $(,)?) $(-> $output:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::inline_always, clippy::too_many_arguments)]
        $visibility fn $name $(<$($generic: $bound),+>)? ($($argument: $type),*) $(-> $output)? {
            #[inline(always)]
            fn plain $(<$($generic: $bound),+>)? ($($argument: $type),*) $(-> $output)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512 $(<$($generic: $bound),+>)? ($($argument: $type),*) $(-> $output)? {
                    plain($($argument),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$($generic: $bound),+>)? ($($argument: $type),*) $(-> $output)? {
                    plain($($argument),*)
                }
                if $crate::vectorised::has_avx512() {
                    // SAFETY: the processor has these instructions.
                    return unsafe { avx512($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has these instructions.
                    return unsafe { avx2($($argument),*) };
                }
            }
            plain($($argument),*)
        }
    };
}
pub(crate) use vectorised;

/// The name of the processor's instructions for adding up sums; sums with other instructions may round differently.
pub(crate) fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            return "avx512";
        }
        if is_x86_feature_detected!("avx2") {
            return "avx2";
        }
    }
    std::env::consts::ARCH
}

/// Returns true if the processor has the instructions of the AVX-512 versions.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}
