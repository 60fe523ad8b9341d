package load

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
)

// Refused documents are kept with their text, so you can correct and import them. The file and the mark move
// together: rejects are on the disk before a mark that counts them. When the import continues, rejects after the mark
// are cut off, because these documents are refused again.

// tally counts the finished records of an import, writes its rejects, and moves its mark.
type tally struct {
	mark     *mark
	report   *report.Report
	progress *progress
	rejects  rejectFile
	saved    time.Time
}

const (
	saveEvery   = time.Second
	maxReported = 10 // number of rejects that are shown individually
)

// add processes the next finished record.
func (t *tally) add(j *job) error {
	if j.refusal == nil {
		t.mark.Imported++
	} else if err := t.keepRejected(j); err != nil {
		return err
	}
	t.mark.Place, t.mark.Rejects = j.next, t.rejects.size
	t.progress.set(t.mark.Imported, t.mark.Rejected, j.next.Offset)
	// Saving waits for the disk. After a crash, at most a second of work is repeated.
	if time.Since(t.saved) < saveEvery {
		return nil
	}
	t.saved = time.Now()
	return t.saveMark()
}

// keepRejected writes a record that is no valid document to the rejects. The first few are shown, so the user notices a
// mistake in all of them before the import ends.
func (t *tally) keepRejected(j *job) error {
	t.mark.Rejected++
	switch {
	case t.mark.Rejected <= maxReported && j.element > 0:
		t.report.Warn("line %d, element %d: %v", j.line, j.element, j.refusal)
	case t.mark.Rejected <= maxReported:
		t.report.Warn("line %d: %v", j.line, j.refusal)
	case t.mark.Rejected == maxReported+1:
		t.report.Warn("more are refused: see %s", t.rejects.path)
	}
	return t.rejects.addRecord(j)
}

// saveMark moves the mark on the disk, after the earlier rejects, because these would not be written again.
func (t *tally) saveMark() error {
	if err := t.rejects.sync(); err != nil {
		return err
	}
	return t.mark.save()
}

// finishImport ends the import, or leaves the mark for the next import.
func (t *tally) finishImport(all bool) error {
	if err := t.saveMark(); err != nil {
		return err
	}
	if err := t.rejects.close(); err != nil || !all {
		return err
	}
	return t.mark.remove() // only now, because rejects that are not on the disk must be written again
}

// A rejectFile contains the refused documents. The first such document creates the file.
type rejectFile struct {
	path string
	size int64
	file *os.File
	pass bool // a device or a pipe, such as /dev/null, which keeps nothing
}

// reject is a line of a reject file.
type reject struct {
	Line    int    `json:"line"`
	Element int    `json:"element,omitempty"` // number of the element in an array
	Error   string `json:"error"`
	Text    string `json:"text"`
	Base64  string `json:"base64,omitempty"` // instead of a text that is not UTF-8
	Bytes   int64  `json:"bytes,omitempty"`  // of an incomplete text
}

// addRecord appends a record. A text that is not UTF-8 is written in base64, because JSON would replace its bytes, and
// the user needs the original bytes.
func (f *rejectFile) addRecord(j *job) error {
	if err := f.open(); err != nil {
		return err
	}
	r := reject{Line: j.line, Element: j.element, Error: j.refusal.Error()}
	if utf8.Valid(j.text) {
		r.Text = string(j.text)
	} else {
		r.Base64 = base64.StdEncoding.EncodeToString(j.text)
	}
	if j.size > int64(len(j.text)) {
		r.Bytes = j.size
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep reject: %w", err)
	}
	n, err := f.file.Write(append(line, '\n'))
	f.size += int64(n)
	if err != nil {
		return fmt.Errorf("keep reject: %w", err)
	}
	return nil
}

// open opens the file at the place that the mark records, because rejects after that are refused again. If the file
// is shorter, the user has changed or removed the file since, and the gap is not filled with zeros.
func (f *rejectFile) open() (err error) {
	if f.file != nil {
		return nil
	}
	if f.file, err = os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return fmt.Errorf("open reject file: %w", err)
	}
	info, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("open reject file: %w", err)
	}
	if f.pass = !info.Mode().IsRegular(); f.pass {
		return nil
	}
	f.size = min(f.size, info.Size())
	if err := f.file.Truncate(f.size); err != nil {
		return fmt.Errorf("open reject file: %w", err)
	}
	if _, err := f.file.Seek(f.size, 0); err != nil {
		return fmt.Errorf("open reject file: %w", err)
	}
	return nil
}

// sync syncs the rejects to the disk, before a mark counts them.
func (f *rejectFile) sync() error {
	if f.file == nil || f.pass {
		return nil
	}
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("keep rejects: %w", err)
	}
	return nil
}

func (f *rejectFile) close() error {
	if f.file == nil {
		return nil
	}
	if err := f.file.Close(); err != nil {
		return fmt.Errorf("keep rejects: %w", err)
	}
	return nil
}
