package load

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// Progress shows how far an import has come: as a bar in a terminal, otherwise as a line from time to time.
type Progress struct {
	w     io.Writer
	name  string
	size  int64 // of the input; 0 if unknown
	every time.Duration
	terminal.Terminal

	mu    sync.Mutex
	begun time.Time
	first *state // state at the beginning of this import
	now   state
	drawn bool
}

// state is the progress of a load.
type state struct {
	imported, rejected, offset int64
}

const (
	barEvery     = 100 * time.Millisecond
	barWidth     = 30
	shortName    = 16 // characters of an input's name on a narrow terminal
	clearLine    = "\r\x1b[K"
	maxRemaining = 100 * time.Hour
)

// NewProgress returns a Progress that shows a load of an input on w. The name - means standard input.
func NewProgress(w io.Writer, name string, in *os.File) *Progress {
	p := &Progress{w: w, name: filepath.Base(name), every: terminal.LineEvery}
	if name == "-" {
		p.name = "standard input"
	}
	if info, err := in.Stat(); err == nil && info.Mode().IsRegular() {
		p.size = info.Size()
	}
	if p.Terminal = terminal.Of(w); p.InPlace {
		p.every = barEvery
	}
	return p
}

// showDuring shows progress while f runs.
func (p *Progress) showDuring(f func() error) error {
	p.begun = time.Now()
	done := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.draw()
			case <-done:
				p.clear()
				return
			}
		}
	})
	err := f()
	close(done)
	showing.Wait()
	return err
}

// setPlace sets the progress of the load.
func (p *Progress) setPlace(imported, rejected, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = state{imported, rejected, offset}
	if p.first == nil {
		// The rate counts from here, because the part done before an interruption took no time now.
		p.first = new(p.now)
	}
}

// Say prints a line.
func (p *Progress) Say(format string, args ...any) {
	p.clear()
	fmt.Fprintln(p.w, terminal.Wrap(fmt.Sprintf(format, args...), 0, p.Room(), 2))
}

// clear removes the bar, so a line can be printed in its place.
func (p *Progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.w, clearLine)
		p.drawn = false
	}
}

// draw shows the present state: in place on a terminal, otherwise as a new line.
func (p *Progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := p.stateLine(time.Since(p.begun))
	if !p.InPlace {
		fmt.Fprintln(p.w, line)
		return
	}
	fmt.Fprint(p.w, clearLine, line)
	p.drawn = true
}

// stateLine returns the state in words, after some time of work. If the terminal is too narrow, the least important
// parts are left out first.
func (p *Progress) stateLine(spent time.Duration) string {
	figures := fmt.Sprintf(" %d documents", p.now.imported)
	share, bar := "", ""
	if p.size > 0 {
		done := min(1, float64(p.now.offset)/float64(p.size)) // a file may grow during the read
		share = fmt.Sprintf(" %3.0f%%", 100*done)
		if p.InPlace {
			full := int(done * barWidth)
			bar = fmt.Sprintf(" [%s%s]", strings.Repeat("#", full), strings.Repeat(".", barWidth-full))
		}
	}
	refused, rate, left := "", "", ""
	if p.now.rejected > 0 {
		refused = fmt.Sprintf(", %d refused", p.now.rejected)
	}
	if p.first != nil && spent > 0 {
		rate = fmt.Sprintf(", %.0f a second", float64(p.now.imported-p.first.imported)/spent.Seconds())
		left = p.timeLeft(spent)
	}
	name := p.name
	text := func() string { return strings.TrimSpace(name + bar + share + figures + refused + rate + left) }
	for _, spare := range []func(){
		func() { bar = "" }, func() { name = terminal.Clip(name, shortName) },
		func() { left = "" }, func() { rate = "" }, func() { name = "" }, func() { refused = "" },
	} {
		if room := p.Room(); room == 0 || utf8.RuneCountInString(text()) <= room {
			break
		}
		spare()
	}
	return text()
}

// timeLeft returns how long the rest takes, if that can be estimated.
func (p *Progress) timeLeft(spent time.Duration) string {
	read := p.now.offset - p.first.offset
	if p.size == 0 || read <= 0 {
		return ""
	}
	left := time.Duration(float64(spent) * float64(p.size-p.now.offset) / float64(read))
	if left < 0 || left >= maxRemaining {
		return ""
	}
	return fmt.Sprintf(", %v left", left.Round(time.Second))
}
