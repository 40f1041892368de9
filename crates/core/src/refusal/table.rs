//! What every entry of the table of refusals becomes: the code, its status, its retry advice and its words.
//!
//! Takes the table in [`super::codes`]; gives the enum `Code` and what can be asked of one.

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
