package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress shows how far an import has come: a bar in a terminal, a line now and then
// elsewhere.
type progress struct {
	w     io.Writer
	name  string
	size  int64 // of the input; 0 when unknown
	width func() int
	every time.Duration

	mu    sync.Mutex
	begun time.Time
	first *state // where this import began
	now   state
	drawn bool
}

// state is what there is to show.
type state struct {
	imported, rejected, offset int64
}

const (
	barEvery     = 100 * time.Millisecond
	lineEvery    = 5 * time.Second
	barWidth     = 30
	narrow       = 80
	clearLine    = "\r\x1b[K"
	maxRemaining = 100 * time.Hour
)

func newProgress(w io.Writer, name string, in *os.File) *progress {
	p := &progress{w: w, name: filepath.Base(name), every: lineEvery}
	if name == "-" {
		p.name = "standard input"
	}
	if info, err := in.Stat(); err == nil && info.Mode().IsRegular() {
		p.size = info.Size()
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.every = barEvery
		p.width = func() int {
			if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
				return width
			}
			return narrow
		}
	}
	return p
}

// during shows progress while f runs.
func (p *progress) during(f func() error) error {
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

// at tells how far the import is.
func (p *progress) at(imported, rejected, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = state{imported, rejected, offset}
	if p.first == nil {
		p.first = new(p.now)
	}
}

// say prints a line.
func (p *progress) say(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.w, clearLine)
		p.drawn = false
	}
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := p.line(time.Since(p.begun))
	if p.width == nil {
		fmt.Fprintln(p.w, line)
		return
	}
	if most := p.width() - 1; len(line) > most {
		line = line[:max(0, most)]
	}
	fmt.Fprint(p.w, clearLine, line)
	p.drawn = true
}

// line is the state in words, after some time of work.
func (p *progress) line(spent time.Duration) string {
	var b strings.Builder
	b.WriteString(p.name)
	share := 0.0
	if p.size > 0 {
		share = float64(p.now.offset) / float64(p.size)
		if p.width != nil {
			full := int(share * barWidth)
			fmt.Fprintf(&b, " [%s%s]", strings.Repeat("#", full), strings.Repeat(".", barWidth-full))
		}
		fmt.Fprintf(&b, " %3.0f%%", 100*share)
	}
	fmt.Fprintf(&b, " %d documents", p.now.imported)
	if p.now.rejected > 0 {
		fmt.Fprintf(&b, ", %d refused", p.now.rejected)
	}
	if p.first == nil || spent <= 0 {
		return b.String()
	}
	fmt.Fprintf(&b, ", %.0f a second", float64(p.now.imported-p.first.imported)/spent.Seconds())
	if read := p.now.offset - p.first.offset; p.size > 0 && read > 0 {
		left := time.Duration(float64(spent) * float64(p.size-p.now.offset) / float64(read))
		if left < maxRemaining {
			fmt.Fprintf(&b, ", %v left", left.Round(time.Second))
		}
	}
	return b.String()
}
