package bench

import (
	"fmt"
	"io"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// The table of figures, for a terminal of any width.

// writeFigures writes a table with a bar for each figure, and a line about each below. In a narrow terminal the table
// first drops the bars and then the targets; the lines below then contain the targets, and the ratios stand beside the
// verdicts, because a row has three lines at most.
func writeFigures(w io.Writer, all []Figure, width int) error {
	table, targets := figureTable(all, true, true), true
	if !terminal.Fits(table, width) {
		table = figureTable(all, false, true)
	}
	if !terminal.Fits(table, width) {
		table, targets = figureTable(all, false, false), false
	}
	if _, err := fmt.Fprintln(w, terminal.Table(table, width)); err != nil {
		return err
	}
	for _, f := range all {
		text := f.Name + ": " + f.Detail
		if !targets {
			text += "; target " + f.Target
		}
		if _, err := fmt.Fprintln(w, terminal.Wrap(text, 0, width, 2)); err != nil {
			return err
		}
	}
	return nil
}

// figureTable returns the rows of the table, with or without its wide columns.
func figureTable(all []Figure, bars, targets bool) [][]string {
	row := func(name, value, baseline, ratio, bar, target, verdict string) []string {
		cells := []string{name, value, baseline}
		if !targets {
			return append(cells, ratio+" "+verdict)
		}
		if cells = append(cells, ratio); bars {
			cells = append(cells, bar)
		}
		return append(cells, target, verdict)
	}
	table := [][]string{row("NAME", "VALUE", "BASELINE", "RATIO", "", "TARGET", "VERDICT")}
	for _, f := range all {
		baseline, ratio, bar, verdict := "-", "-", "", "ok"
		if f.Baseline != nil {
			baseline, ratio, bar = amount(*f.Baseline), fmt.Sprintf("%.3g", *f.Ratio), barOf(*f.Ratio)
		}
		if !f.OK {
			verdict = "MISSED"
		}
		table = append(table, row(f.Name, amount(f.Value)+" "+f.Unit, baseline, ratio, bar, f.Target, verdict))
	}
	return table
}

// figureBar is the width of the bar of a figure that equals its baseline.
const figureBar = 20 // characters

// barOf draws a figure relative to its baseline, which is the whole width.
func barOf(ratio float64) string {
	full := min(figureBar, max(0, int(ratio*figureBar+0.5)))
	return strings.Repeat("█", full) + strings.Repeat("░", figureBar-full)
}

// amount writes a number with about four digits, because no benchmark is more precise.
func amount(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.2fM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
