//! What is made of the table of refusals: the codes, and what is known of each.

use std::fmt;

use super::Code;

macro_rules! codes {
    ($($name:ident = $code:literal, $status:literal, $retry:expr, $meaning:literal, $hint:literal;)*) => {
        /// Why an agent was told no.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = concat!("`", $code, "`: ", $meaning, ".")] $name,)*
        }

        impl Code {
            /// All codes, room by room.
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];

            /// The stable text: `room.what`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The HTTP status it is answered with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Whether and when the same call makes sense again.
            #[must_use]
            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => $retry,)* }
            }

            /// What happened.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            /// What to do instead, addressed to the agent.
            #[must_use]
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

impl Code {
    /// The code with this text.
    #[must_use]
    pub fn from_code(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// The part before the dot.
    #[must_use]
    pub fn room(self) -> &'static str {
        self.as_str().split_once('.').map_or(self.as_str(), |(room, _)| room)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
