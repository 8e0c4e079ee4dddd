//! Aligned tables, colours and durations for people.

use std::{io::IsTerminal, time::Duration};

pub(super) use storewatch_core::time::short as human;

/// What a cell means; shown by colour where there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Doubtful,
    Bad,
    Heading,
}

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) colours: bool,
}

impl Style {
    /// Colours only on a terminal that can show them, and not against `NO_COLOR`.
    pub(super) fn of_stdout() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { colours: std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb }
    }

    /// `text` in the colour of `tone`.
    pub(super) fn paint(self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Doubtful => "33",
            Tone::Bad => "31",
            Tone::Heading => "1",
            Tone::Plain => return text.to_owned(),
        };
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell of a certain meaning; an empty text is shown as `-`.
    pub(super) fn new(text: impl Into<String>, tone: Tone) -> Self {
        let text: String = text.into();
        let text = if text.is_empty() { "-".to_owned() } else { clean(&text) };
        Self { text, tone }
    }

    /// In characters.
    pub(super) fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// What came over the network must not steer the terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

/// Rows under a heading, columns three spaces apart, nothing behind the last column.
pub(super) fn table(headings: &[&str], rows: Vec<Vec<Cell>>, style: Style) -> String {
    let heading = headings.iter().map(|text| Cell::new(*text, Tone::Heading)).collect();
    let rows: Vec<Vec<Cell>> = std::iter::once(heading).chain(rows).collect();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or_default();
    let widths: Vec<_> = (0..headings.len()).map(width).collect();
    rows.iter().map(|row| line(row, &widths, style)).collect()
}

/// One row of columns that are at least so wide.
pub(super) fn line(cells: &[Cell], widths: &[usize], style: Style) -> String {
    let mut text = String::new();
    let last = cells.len().saturating_sub(1);
    for (column, cell) in cells.iter().enumerate() {
        text.push_str(&style.paint(&cell.text, cell.tone));
        if column < last {
            let pad = widths.get(column).map_or(0, |width| width.saturating_sub(cell.width()));
            text.push_str(&" ".repeat(pad + 3));
        }
    }
    text.push('\n');
    text
}

/// Milliseconds as the agent gives them.
pub(super) fn human_ms(millis: u64) -> String {
    human(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_colours_do_not_disturb() {
        let rows = || {
            vec![
                vec![Cell::from("a"), Cell::new("Ready", Tone::Good), Cell::from("")],
                vec![Cell::from("längér"), Cell::new("No", Tone::Bad), Cell::from("x\x1b[2Jy\n")],
            ]
        };
        let plain = table(&["NAME", "STATUS", "WHY"], rows(), Style { colours: false });
        assert_eq!(plain, "NAME     STATUS   WHY\na        Ready    -\nlängér   No       x?[2Jy?\n");
        let coloured = table(&["NAME", "STATUS", "WHY"], rows(), Style { colours: true });
        assert!(coloured.contains("\x1b[32mReady\x1b[0m    -"), "{coloured:?}");
        let bare =
            ["\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"].iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(bare, plain);
    }

    #[test]
    fn durations_are_short() {
        let rows = [(0, "0ms"), (999, "999ms"), (1000, "1s"), (59_999, "59s"), (60_000, "1m00s"), (292_000, "4m52s")];
        for (millis, shown) in rows {
            assert_eq!(human_ms(millis), shown);
        }
        assert_eq!(human_ms(3_600_000 * 3 + 7 * 60_000), "3h07m");
        assert_eq!(human_ms(86_400_000 * 2 + 4 * 3_600_000), "2d04h");
    }
}
