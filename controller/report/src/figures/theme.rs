//! Colours of figures on a light and a dark background.
//!
//! The palette is that of Okabe and Ito, which is distinguishable for any colour vision. A colour
//! below the contrast of WCAG 2.2 (1.4.11: 3 to 1) on one background is darker or lighter there.
//! Specifications name styles instead of colours, so that one specification serves both.

use serde_json::{Value, json};

struct Colours {
    ground: &'static str,
    text: &'static str,
    muted: &'static str,
    grid: &'static str,
    series: [&'static str; 6],
    /// Colours of delay components, in packet order; the last is for the unmeasured remainder.
    parts: [&'static str; 11],
    lost: &'static str,
}

const LIGHT: Colours = Colours {
    ground: "#ffffff",
    text: "#1b1f24",
    muted: "#59636e",
    grid: "#e4e7eb",
    // Reddish purple and orange are darker than Okabe and Ito's.
    series: ["#0072b2", "#d55e00", "#008a64", "#a8527f", "#8f6200", "#1b1f24"],
    // Eleven colours with maximum distance for any colour vision; links are blue, ends grey.
    parts: [
        "#1e0f0f", "#5a5aff", "#c33c0f", "#871e96", "#a5961e", "#960000", "#00a596", "#0f0fe1",
        "#1e4b4b", "#786969", "#d2d2e1",
    ],
    lost: "#b54708",
};

const DARK: Colours = Colours {
    ground: "#16191d",
    text: "#e8eaed",
    muted: "#a3abb5",
    grid: "#30363d",
    // The light colours of the set; yellow replaces black.
    series: ["#56b4e9", "#e69f00", "#1fb98c", "#cc79a7", "#f0e442", "#e8eaed"],
    parts: [
        "#f0f0ff", "#5a4bff", "#e18700", "#785a87", "#ffd20f", "#d21e0f", "#a5c396", "#5a96f0",
        "#00d2ff", "#968787", "#3c3c4b",
    ],
    lost: "#ff9d5c",
};

/// `config` for a light background, contained in every specification.
pub(crate) fn light() -> Value {
    LIGHT.config()
}

/// `config` for a dark background, which the page substitutes.
pub(crate) fn dark() -> Value {
    DARK.config()
}

impl Colours {
    fn config(&self) -> Value {
        let Self { ground, text, muted, grid, series, parts, lost } = self;
        let main = series[0];
        json!({
            "background": ground,
            "font": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            // One image with one description, instead of one node per mark for screen readers.
            "aria": false,
            "view": {"stroke": null},
            "axis": {
                "domainColor": muted, "tickColor": muted, "gridColor": grid, "labelColor": text,
                "titleColor": text, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 500,
                "titlePadding": 8, "labelOverlap": true, "labelLimit": 260, "titleLimit": 600
            },
            "legend": {
                "orient": "top", "direction": "horizontal", "columns": 3, "labelColor": text,
                "titleColor": text, "labelFontSize": 12, "titleFontSize": 12,
                "titleFontWeight": 500, "symbolStrokeWidth": 2, "symbolSize": 110,
                "labelLimit": 240, "titleLimit": 600
            },
            "header": {
                "labelColor": text, "titleColor": text, "labelFontSize": 12, "labelFontWeight": 600,
                "labelAnchor": "start", "labelLimit": 600, "titleFontSize": 12
            },
            "title": {
                "color": muted, "fontSize": 11, "fontWeight": "normal", "anchor": "start",
                "orient": "bottom", "offset": 12, "limit": 760, "frame": "bounds"
            },
            "range": {
                "category": series, "ordinal": parts,
                "symbol": ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"],
                // Cividis has uniform lightness, so it is readable in grey.
                "heatmap": {"scheme": "cividis"}, "ramp": {"scheme": "cividis"}
            },
            "mark": {"color": main},
            "line": {"strokeWidth": 2},
            "text": {"color": text, "fontSize": 12},
            "style": {
                "outer": {"color": main, "opacity": 0.22},
                "inner": {"color": main, "opacity": 0.32},
                "median": {"color": main, "strokeWidth": 2},
                "middle": {"color": text, "thickness": 3},
                "box": {"color": main, "opacity": 0.55},
                "whisker": {"color": main, "strokeWidth": 2},
                "extreme": {"color": text, "opacity": 0.75},
                "part": {"stroke": text, "strokeWidth": 0.4},
                "trial": {"color": text, "opacity": 0.9},
                "outlier": {"color": lost},
                "lost": {"color": lost},
                "limit": {"color": muted, "strokeWidth": 1},
                "span": {"color": muted},
                "note": {"color": muted, "fontSize": 11},
                "label": {"color": text, "fontSize": 12}
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance (WCAG 2.2).
    fn luminance(hex: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn colours_reach_wcag_contrast() {
        for colours in [&LIGHT, &DARK] {
            let parts = &colours.parts[..10];
            for series in colours.series.iter().chain(parts).chain([&colours.lost]) {
                let ratio = contrast(series, colours.ground);
                assert!(ratio >= 3.0, "{series} on {}: {ratio:.2}", colours.ground);
            }
            for text in [colours.text, colours.muted] {
                let ratio = contrast(text, colours.ground);
                assert!(ratio >= 4.5, "{text} on {}: {ratio:.2}", colours.ground);
            }
        }
    }

    /// Linear red, green and blue, from 0 to 1.
    fn linear(hex: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color
    /// Vision Deficiency" (2009), at full severity: normal, protanopia, deuteranopia, tritanopia.
    const VISIONS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
        [
            [1.255_528, -0.076_749, -0.178_779],
            [-0.078_411, 0.930_809, 0.147_602],
            [0.004_733, 0.691_367, 0.303_900],
        ],
    ];

    fn times(matrix: &[[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
    }

    /// Oklab (Ottosson), a perceptually uniform colour space.
    fn oklab(colour: [f64; 3]) -> [f64; 3] {
        let cones = times(
            &[
                [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
                [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
                [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
            ],
            colour.map(|c| c.clamp(0.0, 1.0)),
        );
        times(
            &[
                [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
                [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
                [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
            ],
            cones.map(f64::cbrt),
        )
    }

    #[test]
    fn component_colours_differ_for_any_colour_vision() {
        for colours in [&LIGHT, &DARK] {
            for vision in &VISIONS {
                let seen = colours.parts.map(|hex| oklab(times(vision, linear(hex))));
                for (i, a) in seen.iter().enumerate() {
                    for (j, b) in seen.iter().enumerate().skip(i + 1) {
                        let square: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
                        let names = [colours.parts[i], colours.parts[j]];
                        assert!(square.sqrt() > 0.1, "{names:?}: {:.3}", square.sqrt());
                    }
                }
            }
        }
    }
}
