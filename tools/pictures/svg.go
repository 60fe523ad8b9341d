package main

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The size of a character in a picture, and its colours.
const (
	cellWidth  = 8.4
	cellHeight = 18
	margin     = 12
	background = "#1e1e1e"
	foreground = "#d4d4d4"
)

// colours are the 16 colours of a terminal, in the order of their codes.
var colours = []string{
	"#000000", "#cd3131", "#0dbc79", "#e5e510", "#3b8eea", "#bc3fbc", "#11a8cd", "#e5e5e5",
	"#7f7f7f", "#f14c4c", "#23d18b", "#f5f543", "#6cb6ff", "#d670d6", "#29b8db", "#ffffff",
}

// A style is how characters are drawn.
type style struct {
	colour string
	bold   bool
	faint  bool
}

// picture returns the SVG of a screen.
func picture(lines []string, width int) string {
	var b strings.Builder
	wide, high := float64(width)*cellWidth+2*margin, len(lines)*cellHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0[1]f %[2]d">`+"\n"+
		`<rect width="100%%" height="100%%" rx="6" fill="%[3]s"/>`+"\n"+
		`<g font-family="Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14" xml:space="preserve">`+"\n",
		wide, high, background)
	now := style{colour: foreground}
	for i, line := range lines {
		y := margin + i*cellHeight + cellHeight - 5
		column := 0
		for text := range strings.SplitSeq(line, "\x1b[") {
			if codes, rest, ok := strings.Cut(text, "m"); ok && isCodes(codes) {
				now = now.after(codes)
				text = rest
			}
			if text == "" {
				continue
			}
			writeText(&b, text, margin+float64(column)*cellWidth, y, now)
			column += utf8.RuneCountInString(text)
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// isCodes reports whether a text is the numbers of a code.
func isCodes(text string) bool { return strings.Trim(text, "0123456789;") == "" }

// writeText writes characters of one style.
func writeText(b *strings.Builder, text string, x float64, y int, s style) {
	if strings.TrimSpace(text) == "" {
		return
	}
	attributes := ""
	if s.bold {
		attributes += ` font-weight="bold"`
	}
	if s.faint {
		attributes += ` opacity="0.6"`
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="%s" textLength="%.1f"%s>%s</text>`+"\n", x, y, s.colour,
		float64(utf8.RuneCountInString(text))*cellWidth, attributes, html.EscapeString(text))
}

// after returns the style after the codes of a terminal.
func (s style) after(codes string) style {
	for code := range strings.SplitSeq(codes, ";") {
		n, err := strconv.Atoi(code)
		switch {
		case err != nil || n == 0:
			s = style{colour: foreground}
		case n == 1:
			s.bold = true
		case n == 2:
			s.faint = true
		case n == 22:
			s.bold, s.faint = false, false
		case n >= 30 && n <= 37:
			s.colour = colours[n-30]
		case n == 39:
			s.colour = foreground
		case n >= 90 && n <= 97:
			s.colour = colours[n-90+8]
		}
	}
	return s
}
