//! Formulas in one variable, such as `x*sigmoid(1.3*x)`, as elementwise functions.
//!
//! ```text
//! sum      = product { ("+" | "-") product }
//! product  = sign { ("*" | "/") sign }
//! sign     = { "+" | "-" } power
//! power    = atom [ ("^" | "**") sign ]
//! atom     = "x" | number | constant | function "(" sum { "," sum } ")" | "(" sum ")"
//! ```
//!
//! Powers bind more tightly than signs, as in Python: −x^2 is −(x²), and 2^3^2 is 2^9.

use std::collections::HashMap;
use std::f64::consts::{E, PI};
use std::fmt;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A formula in the variable x. Every distinct text is kept once, for the life of the process, so that a formula is as
/// cheap to copy as the name of an activation.
#[derive(Clone, Copy)]
pub struct Expression(&'static Program);

/// A formula as it was written and as steps on a stack of numbers.
struct Program {
    text: String,
    steps: Vec<Step>,
}

/// One step of a formula in postfix order, on a stack of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Pushes the variable.
    X,
    /// Pushes a number.
    Number(f64),
    /// Replaces the last number u by −u.
    Negative,
    /// Replaces the last number by the value of a function.
    Unary(Unary),
    /// Replaces the last two numbers by the result of an operation.
    Binary(Binary),
}

impl Step {
    /// The number of numbers on the stack that the step replaces by one.
    pub fn operands(self) -> usize {
        match self {
            Self::X | Self::Number(_) => 0,
            Self::Negative | Self::Unary(_) => 1,
            Self::Binary(_) => 2,
        }
    }
}

/// Defines an enum of functions with the names by which formulas call them.
macro_rules! functions {
    ($(#[$about:meta])* $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$doc])* $variant,)+
        }

        impl $enum {
            /// Every function with its name.
            pub const ALL: &'static [(&'static str, Self)] = &[$(($name, Self::$variant)),+];
        }
    };
}

functions! {
    /// A function of one number u.
    Unary {
        /// |u|.
        Abs = "abs",
        /// √u.
        Sqrt = "sqrt",
        /// e^u.
        Exp = "exp",
        /// e^u − 1.
        Expm1 = "expm1",
        /// ln u.
        Log = "log",
        /// ln(1 + u).
        Log1p = "log1p",
        /// sin u.
        Sin = "sin",
        /// cos u.
        Cos = "cos",
        /// arctan u.
        Atan = "atan",
        /// tanh u.
        Tanh = "tanh",
        /// erf u.
        Erf = "erf",
        /// 1/(1 + e^(−u)).
        Sigmoid = "sigmoid",
        /// ln(1 + e^u).
        Softplus = "softplus",
        /// max(u, 0).
        Relu = "relu",
        /// u Φ(u), where Φ is the standard normal distribution function.
        Gelu = "gelu",
        /// u/(1 + e^(−u)).
        Silu = "silu",
    }
}

functions! {
    /// An operation on two numbers u and v.
    Binary {
        /// u + v.
        Sum = "+",
        /// u − v.
        Difference = "-",
        /// u·v.
        Product = "*",
        /// u/v.
        Quotient = "/",
        /// u^v.
        Power = "^",
        /// The smaller of u and v.
        Min = "min",
        /// The larger of u and v.
        Max = "max",
    }
}

const CONSTANTS: [(&str, f64); 2] = [("pi", PI), ("e", E)];

/// A text that is no formula.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "column {column} of `{text}`: expected {expected}, got {got}; a formula has x, numbers, + - * / ^, pi, e and {}",
    known()
)]
pub struct ExpressionError {
    /// The text.
    pub text: String,
    /// The place in the text in characters, from 1.
    pub column: usize,
    /// The expected part of a formula, in words.
    pub expected: &'static str,
    /// The text at that place.
    pub got: String,
}

/// Returns the names of all functions.
fn known() -> String {
    let operations = Binary::ALL.iter().map(|&(name, _)| name).filter(|name| name.starts_with(char::is_alphabetic));
    Unary::ALL.iter().map(|&(name, _)| name).chain(operations).collect::<Vec<_>>().join(", ")
}

impl Expression {
    /// The largest number of numbers on the stack.
    pub const DEEPEST: usize = 32;

    /// The text of the formula.
    pub fn text(self) -> &'static str {
        &self.0.text
    }

    /// The steps that compute the formula: they leave one number on the stack.
    pub fn steps(self) -> &'static [Step] {
        &self.0.steps
    }
}

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        static ALL: LazyLock<Mutex<HashMap<String, Expression>>> = LazyLock::new(Mutex::default);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = all.get(text) {
            return Ok(known);
        }
        let steps = Parser { text, at: 0, depth: 0, pending: 0, steps: Vec::new() }.parse()?;
        let new = Self(Box::leak(Box::new(Program { text: text.to_owned(), steps })));
        all.insert(text.to_owned(), new);
        Ok(new)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.text(), f)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Expression {}

/// Writes the text of the formula.
impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

/// Reads the text of a formula.
impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Reads a text from left to right and appends the steps of each part when it ends.
struct Parser<'t> {
    text: &'t str,
    /// The offset in bytes of the first unread character.
    at: usize,
    /// The number of open parts of the grammar, which limits recursion.
    depth: usize,
    /// The number of numbers on the stack after the last step.
    pending: usize,
    steps: Vec<Step>,
}

type Parsed = Result<(), ExpressionError>;

impl Parser<'_> {
    fn parse(mut self) -> Result<Vec<Step>, ExpressionError> {
        self.sum()?;
        if self.peek().is_some() {
            return Err(self.error("an operator or the end"));
        }
        Ok(self.steps)
    }

    fn sum(&mut self) -> Parsed {
        self.product()?;
        loop {
            let operation = match self.peek() {
                Some('+') => Binary::Sum,
                Some('-') => Binary::Difference,
                _ => return Ok(()),
            };
            self.at += 1;
            self.product()?;
            self.push(Step::Binary(operation))?;
        }
    }

    fn product(&mut self) -> Parsed {
        self.sign()?;
        loop {
            let operation = match self.peek() {
                Some('*') => Binary::Product,
                Some('/') => Binary::Quotient,
                _ => return Ok(()),
            };
            self.at += 1;
            self.sign()?;
            self.push(Step::Binary(operation))?;
        }
    }

    fn sign(&mut self) -> Parsed {
        const DEEPEST: usize = 64;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("at most 64 parts inside each other"));
        }
        match self.peek() {
            Some('-') => {
                self.at += 1;
                self.sign()?;
                self.push(Step::Negative)?;
            }
            Some('+') => {
                self.at += 1;
                self.sign()?;
            }
            _ => self.power()?,
        }
        self.depth -= 1;
        Ok(())
    }

    fn power(&mut self) -> Parsed {
        self.atom()?;
        if self.takes("**") || self.takes("^") {
            self.sign()?;
            self.push(Step::Binary(Binary::Power))?;
        }
        Ok(())
    }

    fn atom(&mut self) -> Parsed {
        match self.peek() {
            Some('(') => {
                self.at += 1;
                self.sum()?;
                self.expect(")", "an operator or `)`")
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.name(),
            _ => Err(self.error("x, a number, a function or `(`")),
        }
    }

    fn number(&mut self) -> Parsed {
        let rest = &self.text[self.at..];
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut end = digits(rest);
        if let Some(exponent) = rest[end..].strip_prefix(['e', 'E']) {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
                end = rest.len() - unsigned.len()
                    + unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
            }
        }
        match rest[..end].parse::<f64>() {
            Ok(number) if number.is_finite() => {
                self.at += end;
                self.push(Step::Number(number))
            }
            Ok(_) | Err(_) => Err(self.error("a finite number")),
        }
    }

    fn name(&mut self) -> Parsed {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        let step = if name == "x" {
            Step::X
        } else if let Some(&(_, number)) = CONSTANTS.iter().find(|constant| constant.0 == name) {
            Step::Number(number)
        } else if let Some(&(_, function)) = Unary::ALL.iter().find(|function| function.0 == name) {
            self.at += end;
            self.expect("(", "`(` after the name of a function")?;
            self.sum()?;
            self.expect(")", "an operator or `)`")?;
            return self.push(Step::Unary(function));
        } else if let Some(&(_, operation)) = Binary::ALL.iter().find(|operation| operation.0 == name) {
            self.at += end;
            self.expect("(", "`(` after the name of a function")?;
            self.sum()?;
            self.expect(",", "`,` and a second argument")?;
            self.sum()?;
            self.expect(")", "an operator or `)`")?;
            return self.push(Step::Binary(operation));
        } else {
            return Err(self.error("x or a known function"));
        };
        self.at += end;
        self.push(step)
    }

    /// Returns the next character that is not a space, and skips the spaces before it.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn takes(&mut self, token: &str) -> bool {
        self.peek();
        let takes = self.text[self.at..].starts_with(token);
        self.at += if takes { token.len() } else { 0 };
        takes
    }

    fn expect(&mut self, token: &str, expected: &'static str) -> Parsed {
        if self.takes(token) { Ok(()) } else { Err(self.error(expected)) }
    }

    fn push(&mut self, step: Step) -> Parsed {
        const MOST_STEPS: usize = 256;
        self.pending = self.pending + 1 - step.operands();
        if self.pending > Expression::DEEPEST || self.steps.len() == MOST_STEPS {
            return Err(self.error("a formula of at most 256 parts, 32 of them open"));
        }
        self.steps.push(step);
        Ok(())
    }

    fn error(&mut self, expected: &'static str) -> ExpressionError {
        let got = match self.peek() {
            None => "the end".to_owned(),
            Some(first) => {
                let rest = &self.text[self.at..];
                let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
                let end = rest.find(|c| !is_name(c)).filter(|&end| end > 0);
                format!(
                    "`{}`",
                    if is_name(first) { &rest[..end.unwrap_or(rest.len())] } else { &rest[..first.len_utf8()] }
                )
            }
        };
        let column = self.text[..self.at].chars().count() + 1;
        ExpressionError { text: self.text.to_owned(), column, expected, got }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_in_postfix_order() {
        let steps = |text: &str| text.parse::<Expression>().expect("a formula").steps();
        let (product, power) = (Step::Binary(Binary::Product), Step::Binary(Binary::Power));
        assert_eq!(steps("-x^2"), [Step::X, Step::Number(2.0), power, Step::Negative]);
        assert_eq!(steps("2^-x"), [Step::Number(2.0), Step::X, Step::Negative, power]);
        let cube = [Step::X, Step::Number(2.0), Step::Number(3.0), power, power];
        assert_eq!(steps("x ** 2 ^ 3"), cube);
        assert_eq!(steps("1.5e-1*sin( x )"), [Step::Number(0.15), Step::X, Step::Unary(Unary::Sin), product]);
        let max = Step::Binary(Binary::Max);
        assert_eq!(steps("max(x, 0) - 1 - 2").len(), 7);
        assert_eq!(steps("max(x, 0)"), [Step::X, Step::Number(0.0), max]);
    }

    #[test]
    fn errors_have_a_place() {
        for (text, column, got) in [
            ("", 1, "the end"),
            ("x*", 3, "the end"),
            ("sin(30*x", 9, "the end"),
            ("sine(x)", 1, "`sine`"),
            ("x + y", 5, "`y`"),
            ("2x", 2, "`x`"),
            ("relu x", 6, "`x`"),
            ("max(x)", 6, "`)`"),
            ("x é", 3, "`é`"),
            ("1.2.3", 1, "`1.2.3`"),
            ("x)", 2, "`)`"),
            ("1e999*x", 1, "`1e999`"),
        ] {
            let error = text.parse::<Expression>().unwrap_err();
            assert_eq!((error.column, error.got.as_str()), (column, got), "{text}");
            assert!(error.to_string().contains("softplus"), "{error}");
        }
        assert!("(".repeat(10_000).parse::<Expression>().is_err());
        assert!("-".repeat(10_000).parse::<Expression>().is_err());
        assert!("x+".repeat(10_000).parse::<Expression>().is_err());
    }

    #[test]
    fn a_formula_is_written_as_it_is_read() {
        let expression: Expression = "x*sigmoid(1.3*x)".parse().expect("a formula");
        let json = serde_json::to_string(&expression).expect("text");
        assert_eq!(json, "\"x*sigmoid(1.3*x)\"");
        assert_eq!(serde_json::from_str::<Expression>(&json).expect("a formula"), expression);
        assert!(serde_json::from_str::<Expression>("\"x+\"").is_err());
    }
}
