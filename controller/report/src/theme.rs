//! Colours of figures, on light and on dark ground.
//!
//! The palette is Okabe and Ito's, which people with any colour vision tell apart; a colour that
//! does not reach the contrast of WCAG 2.2 (1.4.11: 3 to 1) on one ground is darker or lighter
//! there. Specifications name styles, never colours, so that one specification serves both.

use serde_json::{Value, json};

struct Colours {
    ground: &'static str,
    text: &'static str,
    muted: &'static str,
    grid: &'static str,
    series: [&'static str; 6],
    lost: &'static str,
}

const LIGHT: Colours = Colours {
    ground: "#ffffff",
    text: "#1b1f24",
    muted: "#59636e",
    grid: "#e4e7eb",
    // Reddish purple and orange are darker than Okabe and Ito's.
    series: ["#0072b2", "#d55e00", "#008a64", "#a8527f", "#8f6200", "#1b1f24"],
    lost: "#b54708",
};

const DARK: Colours = Colours {
    ground: "#16191d",
    text: "#e8eaed",
    muted: "#a3abb5",
    grid: "#30363d",
    // The light ones of the set; yellow takes the place of black.
    series: ["#56b4e9", "#e69f00", "#1fb98c", "#cc79a7", "#f0e442", "#e8eaed"],
    lost: "#ff9d5c",
};

/// The `config` of a specification on light ground: what a specification carries with it.
pub(crate) fn light() -> Value {
    LIGHT.config()
}

/// The same on dark ground, which the page puts in its place.
pub(crate) fn dark() -> Value {
    DARK.config()
}

impl Colours {
    fn config(&self) -> Value {
        let Self { ground, text, muted, grid, series, lost } = self;
        let main = series[0];
        json!({
            "background": ground,
            "font": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            // One image with one description: a screen reader would otherwise walk every mark.
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
                "category": series,
                "symbol": ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"],
                // Cividis: even in lightness, so it also reads in grey.
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
                "trial": {"color": text, "opacity": 0.9},
                "outlier": {"color": lost},
                "lost": {"color": lost},
                "limit": {"color": muted, "strokeWidth": 1},
                "note": {"color": muted, "fontSize": 11},
                "label": {"color": text, "fontSize": 12}
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG 2.2's relative luminance.
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
    fn every_colour_stands_out_from_its_ground() {
        for colours in [&LIGHT, &DARK] {
            for series in colours.series.iter().chain([&colours.lost]) {
                let ratio = contrast(series, colours.ground);
                assert!(ratio >= 3.0, "{series} on {}: {ratio:.2}", colours.ground);
            }
            for text in [colours.text, colours.muted] {
                let ratio = contrast(text, colours.ground);
                assert!(ratio >= 4.5, "{text} on {}: {ratio:.2}", colours.ground);
            }
        }
    }
}
