// Package load writes many documents into a container, fast and resumably. The input is cut into documents, and many
// documents are written at the same time. Refused documents are written to a file. A mark on the disk records where
// the next load of the same input must continue.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// Options are the settings of a load. All but Restart are required.
type Options struct {
	Input   string // what is loaded, for people
	Writers int    // documents written at the same time
	Rejects string // file for refused documents
	Restart bool   // start again, even if an interrupted load could continue
}

// Result is the outcome of a load.
type Result struct {
	Imported int64        `json:"imported" about:"number of documents"`
	Rejected int64        `json:"rejected" about:"number of records that are no documents"`
	Seconds  float64      `json:"seconds" about:"how long the import took"`
	Rate     float64      `json:"documents_per_second" about:"rate of this import"`
	Before   int64        `json:"imported_before" about:"by the interrupted import before this run"`
	Rejects  report.Known `json:"rejects" about:"the file of the rejected records; null if there are none"`
}

// ReportedAs implements [report.Value].
func (Result) ReportedAs() string { return "import" }

// Documents writes the documents of an input to a container, and reports its progress. If a load of the same input was
// interrupted, Documents continues there. If documents were refused, Documents returns an error in addition to the
// result, because these documents are missing. After an error the mark is saved too, so the result says how far the
// load has come.
func Documents(ctx context.Context, in *os.File, to *place.Container, r *report.Report, o Options) (*Result, error) {
	m, err := resume(in, to, r, o)
	if err != nil {
		return nil, err
	}
	s, err := newSplitter(in, m.Place)
	if err != nil {
		return nil, err
	}
	t := &tally{
		mark: m, report: r, progress: newProgress(in, m), saved: time.Now(),
		rejects: rejectFile{path: o.Rejects, size: m.Rejects},
	}
	before := m.Imported
	begun := time.Now()
	err = r.During(o.Input, report.Documents, t.progress.state, func() error {
		return newLoader(to, o.Writers).writeAll(ctx, s, t.add)
	})
	if err != nil {
		// The cause comes first, because the error of an interrupted write says less.
		err = stopped(cmp.Or(context.Cause(ctx), err), m)
	}
	err = cmp.Or(err, t.finishImport(err == nil))
	done := &Result{
		Imported: m.Imported - before, Rejected: m.Rejected, Before: before,
		Seconds: time.Since(begun).Seconds(),
	}
	done.Rate = float64(done.Imported) / done.Seconds
	if done.Rejected > 0 {
		done.Rejects = report.Known(o.Rejects)
		err = cmp.Or(err, fmt.Errorf("%s of %s refused: see %s",
			terminal.Number(done.Rejected), documentsWere(done.Rejected+m.Imported), o.Rejects))
	}
	return done, err
}

// stopped returns the error of a load that did not finish: the reason, and how to continue.
func stopped(err error, m *mark) error {
	switch {
	case m.Place.Offset == 0:
		return err
	case m.path == "":
		return fmt.Errorf("%w; done up to line %d, and the same command begins anew, which writes these again", err,
			m.Place.Line)
	}
	return fmt.Errorf("%w; done up to line %d, and the same command goes on from there", err, m.Place.Line)
}

// resume opens the mark of an import, and moves the input to this mark.
func resume(in *os.File, to *place.Container, r *report.Report, o Options) (*mark, error) {
	m, found, err := openMark(in, to)
	if err != nil {
		return nil, err
	}
	if !found || o.Restart {
		m.reset()
		return m, dropRejects(o.Rejects)
	}
	if _, err := in.Seek(m.Place.Offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("go on with input: %w", err)
	}
	r.Notice("going on after line %d of an interrupted import; --restart begins anew", m.Place.Line)
	return m, nil
}

// dropRejects removes the rejects of an earlier import when an import starts again. dropRejects does not remove a
// device, because root could remove /dev/null.
func dropRejects(file string) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return nil
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old rejects: %w", err)
	}
	return nil
}

// documentsWere returns the beginning of a sentence about n documents.
func documentsWere(n int64) string {
	if n == 1 {
		return "1 document was"
	}
	return terminal.Count(n, "document") + " were"
}

// keyPaths splits partition key paths into segments.
func keyPaths(paths []string) (segments [][]string) {
	for _, p := range paths {
		segments = append(segments, slices.DeleteFunc(strings.Split(p, "/"), func(s string) bool { return s == "" }))
	}
	return segments
}
