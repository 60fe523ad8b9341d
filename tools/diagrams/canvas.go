package main

import (
	"fmt"
	"html"
	"strings"
)

// The sizes are those of the page on a phone: a picture of this width is still readable when it is half as wide.
const (
	width      = 640
	fontSize   = 15
	smallSize  = 13
	charWidth  = 0.56 // of the font size, for a usual text without serifs
	lineHeight = 19
	cellWidth  = 32
	cellHeight = 28
)

// The look of a part says what it is; a word beside it says the same, because not everybody sees colours.
const (
	plain   = "box"     // a thing
	own     = "own"     // a thing of the reader, or what the picture is about
	done    = "done"    // handled
	inHand  = "hand"    // in the handler
	pending = "pending" // not handled
	failed  = "failed"
	parked  = "parked" // among the dead letters
)

// A diagram is a picture. Coordinates are pixels from the upper left corner.
type diagram struct {
	name, title, desc string
	height            int
	body              strings.Builder
	misfits           []string // texts that are wider than their place
}

func (d *diagram) fileName() string { return "concept-" + d.name + ".svg" }

// box draws a rectangle with lines of text in its middle.
func (d *diagram) box(x, y, w, h int, look string, lines ...string) {
	fmt.Fprintf(&d.body, "<rect class=%q x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", look, x, y, w, h)
	top := y + h/2 - (len(lines)-1)*lineHeight/2 + 5
	for i, line := range lines {
		d.checkWidth(line, fontSize, w-6)
		d.write(x+w/2, top+i*lineHeight, "middle", "", line)
	}
}

// frame draws a rectangle with a text at its top.
func (d *diagram) frame(x, y, w, h int, title string) {
	fmt.Fprintf(&d.body, "<rect class=\"box\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", x, y, w, h)
	d.checkWidth(title, fontSize, w-20)
	d.write(x+10, y+20, "start", "strong", title)
}

// cells draws the changes of a feed, each with a short text.
func (d *diagram) cells(x, y int, look string, texts ...string) (end int) {
	for _, text := range texts {
		fmt.Fprintf(&d.body, "<rect class=%q x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\"/>\n",
			look, x, y, cellWidth-4, cellHeight)
		d.checkWidth(text, smallSize, cellWidth-4)
		d.write(x+(cellWidth-4)/2, y+19, "middle", "small", text)
		x += cellWidth
	}
	return x
}

// note writes a small text that begins at x.
func (d *diagram) note(x, y int, text string) {
	d.checkWidth(text, smallSize, width-8-x)
	d.write(x, y, "start", "small", text)
}

// label writes a small text whose middle is x.
func (d *diagram) label(x, y int, text string) {
	d.checkWidth(text, smallSize, 2*min(x, width-x)-8)
	d.write(x, y, "middle", "small", text)
}

// arrow draws a line with a head at its second end.
func (d *diagram) arrow(x1, y1, x2, y2 int) {
	fmt.Fprintf(&d.body, "<path class=\"line\" d=\"M%d %dL%d %d\" marker-end=\"url(#head)\"/>\n", x1, y1, x2, y2)
}

// line draws a line without a head; a dashed line is a place or a time.
func (d *diagram) line(x1, y1, x2, y2 int, dashed bool) {
	class := "line"
	if dashed {
		class = "line dashed"
	}
	fmt.Fprintf(&d.body, "<path class=%q d=\"M%d %dL%d %d\"/>\n", class, x1, y1, x2, y2)
}

// brace marks a stretch of cells from below and says what they are.
func (d *diagram) brace(x1, x2, y int, text string) {
	fmt.Fprintf(&d.body, "<path class=\"line\" d=\"M%d %dv6h%dv-6\"/>\n", x1, y, x2-x1)
	d.label((x1+x2)/2, y+21, text)
}

func (d *diagram) write(x, y int, anchor, class, text string) {
	fmt.Fprintf(&d.body, "<text class=%q x=\"%d\" y=\"%d\" text-anchor=%q>%s</text>\n",
		class, x, y, anchor, html.EscapeString(text))
}

func (d *diagram) checkWidth(text string, size, room int) {
	if float64(len([]rune(text)))*charWidth*float64(size) > float64(room) {
		d.misfits = append(d.misfits, text)
	}
}

// svg returns the file. The title and the description are read by screen readers.
func (d *diagram) svg() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`aria-labelledby="title desc">
<title id="title">%s</title>
<desc id="desc">%s</desc>
%s<rect class="ground" width="%d" height="%d" rx="8"/>
%s</svg>
`, width, d.height, width, d.height, html.EscapeString(d.title), html.EscapeString(d.desc), look, width, d.height,
		d.body.String())
}

// look has the colours of both modes, and the head of arrows.
const look = `<style>
text{font:15px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;fill:#1f2328}
.small{font-size:13px}
.strong{font-weight:600}
rect{fill:#f6f8fa;stroke:#8c959f}
.ground{fill:#fff;stroke:#d0d7de}
.own{fill:#ddf0ff;stroke:#0969da}
.done{fill:#d3f2db;stroke:#1a7f37}
.hand{fill:#ffe9bd;stroke:#9a6700}
.pending{fill:#eaeef2;stroke:#6e7781}
.failed{fill:#ffdcd7;stroke:#cf222e}
.parked{fill:#ece2fd;stroke:#8250df}
.line{fill:none;stroke:#57606a;stroke-width:1.5}
.dashed{stroke-dasharray:5 4}
.head{fill:#57606a}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
rect{fill:#161b22;stroke:#6e7681}
.ground{fill:#0d1117;stroke:#30363d}
.own{fill:#0c2d5c;stroke:#58a6ff}
.done{fill:#12401f;stroke:#3fb950}
.hand{fill:#4d3800;stroke:#d29922}
.pending{fill:#262c34;stroke:#8b949e}
.failed{fill:#5d1a18;stroke:#f85149}
.parked{fill:#3b2566;stroke:#a371f7}
.line{stroke:#9aa4af}
.head{fill:#9aa4af}
}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>
`
