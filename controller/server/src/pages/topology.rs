//! The topology of a plan as a drawing, with its text.

use askama::Template;

use crate::experiments::topology::{Network, Path, PlanNode, PlanTopology};

/// Maximum number of nodes of a drawing. Of more, those without a task are left out.
const MAX_NODES: usize = 8;

/// Maximum number of arrows of loads.
const MAX_LOADS: usize = 4;

/// Maximum number of tasks in the box of a node.
const MAX_TASKS: usize = 4;

/// Maximum number of characters of a line in a box; the rest is in the text below.
const MAX_LINE_LEN: usize = 20;

/// Sizes, in pixels.
const NODE_WIDTH: usize = 140;
const GAP: usize = 48;
const MARGIN: usize = 4;
const LINE_HEIGHT: usize = 18;
const ARROW_HEIGHT: usize = 30;
const RAIL_HEIGHT: usize = 22;

/// A drawing.
#[derive(Template)]
#[template(path = "topology.html")]
pub(crate) struct Drawing {
    width: usize,
    height: usize,
    boxes: Vec<NodeBox>,
    links: Vec<Link>,
    arrows: Vec<Arrow>,
    /// What is drawn, in sentences.
    sentences: Vec<String>,
}

/// A node at a place.
struct NodeBox {
    x: usize,
    y: usize,
    height: usize,
    /// Lines of text: name, device, tasks.
    lines: Vec<(usize, &'static str, String)>,
}

/// A connection.
struct Link {
    points: String,
    /// Whether it is outside of the plan.
    is_foreign: bool,
    /// Whether nodes are left out of it.
    has_omitted: bool,
}

/// Packets from one node to another.
struct Arrow {
    points: String,
    head: String,
    tail: Option<String>,
    label: String,
    x: usize,
    y: usize,
    is_load: bool,
}

impl Drawing {
    /// Class by the width that keeps texts readable; the drawing scrolls on narrower screens.
    fn class(&self) -> &'static str {
        match self.boxes.len() {
            0..=2 => "few",
            3 => "some",
            _ => "many",
        }
    }

    pub(crate) fn new(topology: &PlanTopology) -> Self {
        let shown = shown(topology);
        let center = |place: usize| MARGIN + place * (NODE_WIDTH + GAP) + NODE_WIDTH / 2;
        let place = |name: &str| shown.iter().position(|(_, node)| node.name == name);
        let paths = std::iter::once((&topology.measured, false));
        let paths = paths.chain(topology.loads.iter().take(MAX_LOADS).map(|load| (load, true)));
        let paths: Vec<_> = paths
            .filter_map(|(path, is_load)| {
                Some((path, is_load, place(&path.from)?, place(&path.to)?))
            })
            .filter(|(_, _, from, to)| from != to)
            .collect();
        let top = MARGIN + paths.len() * ARROW_HEIGHT + 8;
        let lines = shown.iter().map(|(_, node)| lines(node).len()).max().unwrap_or_default();
        let height = lines * LINE_HEIGHT + 14;
        let boxes = shown.iter().enumerate().map(|(i, (_, node))| NodeBox {
            x: center(i) - NODE_WIDTH / 2,
            y: top,
            height,
            lines: placed(lines_of(node), top),
        });
        // The outermost arrow is the measured one.
        let arrows = paths.iter().enumerate().map(|(i, (path, is_load, from, to))| {
            let y = MARGIN + i * ARROW_HEIGHT + LINE_HEIGHT;
            // Arrows of one node begin side by side.
            let offset = (paths.len() - i) * 14;
            let side = |at: usize, other: usize| {
                if other > at { center(at) + offset } else { center(at) - offset }
            };
            arrow(path, *is_load, (side(*from, *to), side(*to, *from)), (y, top))
        });
        let bottom = top + height;
        let links = links(topology.network, &shown, center, (top + height / 2, bottom));
        let rail = if topology.network == Network::Star { RAIL_HEIGHT } else { 0 };
        Self {
            width: 2 * MARGIN + shown.len() * NODE_WIDTH + shown.len().saturating_sub(1) * GAP,
            height: bottom + rail + MARGIN,
            boxes: boxes.collect(),
            arrows: arrows.collect(),
            links,
            sentences: sentences(topology),
        }
    }
}

/// The nodes that are drawn, with their numbers.
fn shown(topology: &PlanTopology) -> Vec<(usize, &PlanNode)> {
    let all = topology.nodes.iter().enumerate();
    if topology.nodes.len() <= MAX_NODES {
        return all.collect();
    }
    let last = topology.nodes.len() - 1;
    let is_traffic = |node: &PlanNode| {
        topology.loads.iter().any(|it| it.from == node.name || it.to == node.name)
    };
    let with_task =
        all.filter(|(i, node)| *i == 0 || *i == last || !node.tasks.is_empty() || is_traffic(node));
    with_task.take(MAX_NODES).collect()
}

fn lines(node: &PlanNode) -> Vec<(&'static str, String)> {
    lines_of(node).collect()
}

fn lines_of(node: &PlanNode) -> impl Iterator<Item = (&'static str, String)> + '_ {
    let name = std::iter::once(("name", shortened(&node.name)));
    let device = node.device.iter().map(|device| ("device", shortened(device)));
    let tasks = node.tasks.iter().take(MAX_TASKS).map(|task| ("task", shortened(task)));
    name.chain(device).chain(tasks)
}

fn placed(
    lines: impl Iterator<Item = (&'static str, String)>,
    top: usize,
) -> Vec<(usize, &'static str, String)> {
    lines.enumerate().map(|(i, (kind, text))| (top + 20 + i * LINE_HEIGHT, kind, text)).collect()
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= MAX_LINE_LEN {
        return text.to_owned();
    }
    let start: String = text.chars().take(MAX_LINE_LEN - 1).collect();
    format!("{start}\u{2026}")
}

/// An arrow above the nodes: up from the sender, along, and down to the receiver.
fn arrow(
    path: &Path,
    is_load: bool,
    (from, to): (usize, usize),
    (y, top): (usize, usize),
) -> Arrow {
    let head = |x: usize| format!("{},{} {},{} {x},{top}", x - 4, top - 8, x + 4, top - 8);
    Arrow {
        points: format!("{from},{top} {from},{y} {to},{y} {to},{}", top - 4),
        head: head(to),
        tail: path.has_replies.then(|| head(from)),
        label: path.label.clone(),
        x: usize::midpoint(from, to),
        y: y - 5,
        is_load,
    }
}

fn links(
    network: Network,
    shown: &[(usize, &PlanNode)],
    center: impl Fn(usize) -> usize,
    (middle, bottom): (usize, usize),
) -> Vec<Link> {
    let link =
        |points, has_omitted| Link { points, has_omitted, is_foreign: network == Network::Devices };
    let pairs = shown.windows(2).enumerate();
    if network != Network::Star {
        let line = |(i, pair): (usize, &[(usize, &PlanNode)])| {
            let (from, to) = (center(i) + NODE_WIDTH / 2, center(i + 1) - NODE_WIDTH / 2);
            link(format!("{from},{middle} {to},{middle}"), pair[0].0 + 1 != pair[1].0)
        };
        return pairs.map(line).collect();
    }
    // From the first node below the others.
    let rail = bottom + RAIL_HEIGHT - 6;
    let leaf = |(i, pair): (usize, &[(usize, &PlanNode)])| {
        let (hub, leaf) = (center(0), center(i + 1));
        link(
            format!("{hub},{bottom} {hub},{rail} {leaf},{rail} {leaf},{bottom}"),
            pair[0].0 + 1 != pair[1].0,
        )
    };
    pairs.map(leaf).collect()
}

/// The drawing in sentences.
fn sentences(topology: &PlanTopology) -> Vec<String> {
    let node = |name: &str| match topology.nodes.iter().find(|node| node.name == name) {
        Some(PlanNode { device: Some(device), .. }) => format!("{name} ({device})"),
        _ => name.to_owned(),
    };
    let Path { label, from, to, has_replies } = &topology.measured;
    let back = if *has_replies { " and back" } else { "" };
    let mut all = vec![format!("Measured: {label} from {} to {}{back}.", node(from), node(to))];
    let count = topology.nodes.len();
    let link = match topology.link.as_str() {
        "" => String::new(),
        link => format!("; each link: {link}"),
    };
    all.push(format!("Network: {count} {}{link}.", topology.network.text()));
    let others = topology.nodes.iter().filter(|it| it.name != *from && it.name != *to);
    let others = others.filter(|node| !node.tasks.is_empty());
    all.extend(others.map(|it| format!("{}: {}.", node(&it.name), it.tasks.join("; "))));
    let loads = topology.loads.iter().take(MAX_LOADS * 2);
    all.extend(
        loads.map(|it| format!("Load {} from {} to {}.", it.label, node(&it.from), node(&it.to))),
    );
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiments::topology::plan_topology;

    fn drawing(lab: &str, to: &str) -> Drawing {
        let text = format!(
            "version = 1\nname = \"x\"\n[topology]\nlab = \"{lab}\"\n[ping]\nfrom = \"n1\"\nto = \"{to}\"\n\
             protocol = \"udp\"\ncount = 9\ninterval = \"1ms\"\n"
        );
        Drawing::new(&plan_topology(&text, &[], &BTreeMap::new()).unwrap())
    }

    #[test]
    fn drawing_has_each_node_and_link() {
        let line = drawing("line:3", "n3");
        assert_eq!((line.boxes.len(), line.links.len(), line.arrows.len()), (3, 2, 1));
        assert!(line.arrows[0].tail.is_some(), "replies come back");
        assert_eq!(line.sentences[0], "Measured: round trips, udp from n1 to n3 and back.");
        let star = drawing("star:4", "n2");
        assert_eq!((star.boxes.len(), star.links.len()), (4, 3));
        assert!(star.height > line.height);
    }

    #[test]
    fn drawing_of_a_long_line_leaves_idle_nodes_out() {
        let long = drawing("line:200", "n150");
        let names: Vec<&str> = long.boxes.iter().map(|node| &*node.lines[0].2).collect();
        assert_eq!(names, ["n1", "n150", "n200"]);
        assert!(long.links.iter().all(|link| link.has_omitted));
        assert!(long.sentences[1].starts_with("Network: 200 nodes in a line"));
    }

    #[test]
    fn names_in_a_drawing_are_escaped_and_short() {
        let topology = PlanTopology {
            nodes: vec![PlanNode { name: "<b>&".repeat(9), ..PlanNode::default() }],
            network: Network::Devices,
            link: String::new(),
            measured: Path {
                label: "<i>".into(),
                from: "a".into(),
                to: "b".into(),
                has_replies: false,
            },
            loads: Vec::new(),
        };
        let html = Drawing::new(&topology).render().unwrap();
        assert!(!html.contains("<b>") && !html.contains("<i>"), "{html}");
    }
}
