package deadletters

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The lines of a file of letters. Each ends with a checksum of what comes before it,
// because a letter that has changed on the disk must not be delivered as if it were the
// change: JSON alone shows few damages.

const (
	ownerFile = 0o600 // letters are users' data
	sealBegin = `,"crc":"`
	sealEnd   = `"}`
	sealSize  = len(sealBegin) + 8 + len(sealEnd)

	letterBegin  = `{"id":"`
	removalBegin = `{"removed":"`
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal is the end of a line that begins with text.
func seal(text []byte) []byte {
	return fmt.Appendf(nil, "%s%08x%s", sealBegin, crc32.Checksum(text, castagnoli), sealEnd)
}

// sealed adds the checksum to an object.
func sealed(object []byte) []byte {
	// Without its brace, and without room after it: the caller's object stays whole.
	text := object[: len(object)-1 : len(object)-1]
	return append(text, seal(text)...)
}

// unsealed takes the checksum off a line.
func unsealed(line []byte) ([]byte, error) {
	end := len(line) - sealSize
	if end < 0 || !bytes.Equal(seal(line[:end]), line[end:]) {
		return nil, fmt.Errorf("%w: its checksum is not that of the line", ErrDamaged)
	}
	return append(line[:end:end], '}'), nil
}

// removal is the line that removes a letter.
func removal(n name) []byte {
	text := rawjson.AppendString([]byte(removalBegin[:len(removalBegin)-1]), n.id)
	text = append(append(text, `,"key":`...), n.key...)
	text = rawjson.AppendString(append(text, `,"processor":`...), n.processor)
	return append(text, '}')
}

// content is what a file has.
type content struct {
	index   map[name]place
	end     int64 // of the last whole line
	live    int64 // bytes of the letters in index
	unended bool  // the line that ends there has no line break
	damaged int   // lines
	damage  error // of the first of them
}

// readLines reads a file from its beginning. A damaged line is passed over, and named: it may
// have been the only copy of a change.
func readLines(f io.Reader) (content, error) {
	c := content{index: map[name]place{}}
	in := bufio.NewReaderSize(f, 256<<10)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return c, err
		}
		text, ended := bytes.CutSuffix(line, []byte("\n"))
		switch err := c.addLine(bytes.TrimSuffix(text, []byte("\r"))); { // an editor, or git, may have added that
		case len(line) == 0, err != nil && !ended && isTorn(text):
			return c, c.damagedLines()
		case err != nil:
			c.damage = cmp.Or(c.damage, fmt.Errorf("line %d: %w", n, err))
			c.damaged++
		}
		c.end += int64(len(line))
		if c.unended = !ended; c.unended {
			return c, c.damagedLines()
		}
	}
}

// damagedLines is the error of the damaged lines, if there are some.
func (c *content) damagedLines() error {
	if c.damaged > 1 {
		return fmt.Errorf("%w (the first of %d such lines)", c.damage, c.damaged)
	}
	return c.damage
}

// isTorn reports whether a text is the beginning of a line, and not all of it: what a crash leaves.
// A file of something else may have one line without a break, and would be cut off as torn.
func isTorn(text []byte) bool {
	isBegun := func(begin string) bool {
		n := min(len(text), len(begin))
		return string(text[:n]) == begin[:n]
	}
	var whole json.RawMessage
	err := json.NewDecoder(bytes.NewReader(text)).Decode(&whole)
	return errors.Is(err, io.ErrUnexpectedEOF) && (isBegun(letterBegin) || isBegun(removalBegin))
}

// addLine takes the next line into the index.
func (c *content) addLine(line []byte) error {
	text, err := unsealed(line)
	if err != nil {
		return err
	}
	var head struct {
		ID, Removed, Processor string
		Key                    json.RawMessage
		LSN                    int64
		Index                  int
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	key, err := parseKey(head.Key)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	n := name{head.Processor, key, head.ID + head.Removed}
	if old, ok := c.index[n]; ok {
		c.live -= old.size
		delete(c.index, n)
	}
	if head.Removed == "" {
		c.index[n] = place{c.end, int64(len(line)), head.LSN, head.Index}
		c.live += int64(len(line))
	}
	return nil
}

// compactFile writes the file anew, with the letters that are there. The new file takes the
// place of the old one when it is safe: a crash before that leaves the old one.
func (b *FileBox) compactFile() error {
	next, err := os.OpenFile(b.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, ownerFile)
	if err != nil {
		return err
	}
	index, size, err := b.copyTo(next)
	if err == nil {
		err = syncFile(next)
	}
	if err == nil {
		err = b.file.Close() // some systems rename no file that is open
	}
	if err = errors.Join(err, next.Close()); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), b.path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(b.path)); err != nil {
		return err
	}
	b.file, err = os.OpenFile(b.path, os.O_RDWR, ownerFile)
	b.index, b.size, b.messy = index, size, false
	return err
}

// copyTo copies the lines of all letters, in the order in which they were written.
func (b *FileBox) copyTo(next *os.File) (map[name]place, int64, error) {
	w := bufio.NewWriterSize(next, 256<<10)
	index, size := map[name]place{}, int64(0)
	byPlace := func(x, y name) int { return int(b.index[x].at - b.index[y].at) }
	for _, n := range slices.SortedFunc(maps.Keys(b.index), byPlace) {
		p := b.index[n]
		if _, err := io.Copy(w, io.NewSectionReader(b.file, p.at, p.size)); err != nil {
			return nil, 0, err
		}
		if err := w.WriteByte('\n'); err != nil {
			return nil, 0, err
		}
		p.at = size
		index[n], size = p, size+p.size+1
	}
	return index, size, w.Flush()
}

// syncDir makes the names of a directory's files safe.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // not every system can
	return d.Close()
}
