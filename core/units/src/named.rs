/// Defines an enum whose variants have names in results, formats or on the command line. Adds `ALL`
/// in the order of declaration, `name`, and `named` for the variant of a name.
///
/// ```
/// dwell_units::named! {
///     /// Direction of a packet.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Direction {
///         /// To the far end.
///         Forward = "forward",
///         /// From the far end.
///         Backward = "backward",
///     }
/// }
/// assert_eq!(Direction::ALL.map(Direction::name), ["forward", "backward"]);
/// assert_eq!(Direction::named("backward"), Some(Direction::Backward));
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$attribute:meta])* $visibility:vis enum $type:ident {
        $($(#[$about:meta])* $variant:ident = $name:literal),+ $(,)?
    }) => {
        $(#[$attribute])*
        $visibility enum $type {
            $($(#[$about])* $variant),+
        }

        #[allow(dead_code, reason = "not every enum needs all three")]
        impl $type {
            /// All variants, in the order of declaration.
            $visibility const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Name in results, formats and on the command line.
            $visibility const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The variant with this name.
            $visibility fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
