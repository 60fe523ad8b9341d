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

// The lines of a file of letters. Each ends with a checksum of the text before, because a letter that has changed on
// the disk must not be delivered instead of the change: JSON alone reveals few damages.

const (
	ownerFile = 0o600 // letters are users' data
	sealBegin = `,"crc":"`
	sealEnd   = `"}`
	sealSize  = len(sealBegin) + 8 + len(sealEnd)

	letterBegin  = `{"id":"`
	removalBegin = `{"removed":"`
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal returns the end of a line that begins with text.
func seal(text []byte) []byte {
	return fmt.Appendf(nil, "%s%08x%s", sealBegin, crc32.Checksum(text, castagnoli), sealEnd)
}

// sealed adds the checksum to an object.
func sealed(object []byte) []byte {
	// Drop the brace and limit the capacity: the caller's object stays unchanged.
	text := object[: len(object)-1 : len(object)-1]
	return append(text, seal(text)...)
}

// unsealed removes the checksum from a line.
func unsealed(line []byte) ([]byte, error) {
	end := len(line) - sealSize
	if end < 0 || !bytes.Equal(seal(line[:end]), line[end:]) {
		return nil, fmt.Errorf("%w: its checksum is not that of the line", ErrDamaged)
	}
	return append(line[:end:end], '}'), nil
}

// removal returns the line that removes a letter.
func removal(n name) []byte {
	text := rawjson.AppendString([]byte(removalBegin[:len(removalBegin)-1]), n.id)
	text = append(append(text, `,"key":`...), n.key...)
	text = rawjson.AppendString(append(text, `,"processor":`...), n.processor)
	return append(text, '}')
}

// content describes a file.
type content struct {
	index   map[name]place
	end     int64 // of the last whole line
	live    int64 // bytes of the letters in index
	unended bool  // the last line has no line break
	damaged int   // lines
	damage  error // of the first of them
}

// readLines reads a file from the beginning. readLines skips a damaged line and reports it, because the line may have
// been the only copy of a change.
func readLines(f io.Reader) (content, error) {
	c := content{index: map[name]place{}}
	in := bufio.NewReaderSize(f, 256<<10)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return c, err
		}
		text, ended := bytes.CutSuffix(line, []byte("\n"))
		switch err := c.addLine(bytes.TrimSuffix(text, []byte("\r"))); { // an editor, or git, may have added the \r
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

// damagedLines returns the error of the damaged lines, if there are any.
func (c *content) damagedLines() error {
	if c.damaged > 1 {
		return fmt.Errorf("%w (the first of %d such lines)", c.damage, c.damaged)
	}
	return c.damage
}

// isTorn reports whether a text is the beginning of a line and incomplete, as after a crash. isTorn checks the
// beginning too, because another kind of file may have a single line without a break, and would be cut off as torn.
func isTorn(text []byte) bool {
	isBegun := func(begin string) bool {
		n := min(len(text), len(begin))
		return string(text[:n]) == begin[:n]
	}
	var whole json.RawMessage
	err := json.NewDecoder(bytes.NewReader(text)).Decode(&whole)
	return errors.Is(err, io.ErrUnexpectedEOF) && (isBegun(letterBegin) || isBegun(removalBegin))
}

// addLine adds the next line to the index.
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

// compactFile rewrites the file with the present letters. The new file replaces the old file when the new file is safe:
// after an earlier crash the old file remains.
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
		err = b.file.Close() // some systems cannot rename an open file
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
	_ = d.Sync() // not every system supports this
	return d.Close()
}
