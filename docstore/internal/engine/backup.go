package engine

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A backup is a copy of the engine's own files at one moment. A directory is written under a temporary name. A stream
// ends with a file that proves the stream complete. Every copy is tested before counting as a backup.

// CopyInto creates a directory with a copy of the files. The directory gets its name only when the copy is on the
// disk and try has found no fault.
func (e *Engine) CopyInto(ctx context.Context, dir string, try func(dir string) error) error {
	return intoNew(dir, func(partial string) error {
		return e.copyFiles(ctx, func(name string, _ int64, content io.Reader) error {
			return writeFile(filepath.Join(partial, name), content)
		})
	}, try)
}

// StreamTo writes the files into a stream for [ReceiveInto]. The stream is a tar archive of the files. Its last file
// records their number and checksum, because a stream that breaks between two files looks complete.
func (e *Engine) StreamTo(ctx context.Context, w io.Writer) error {
	out := tar.NewWriter(w)
	sum := newBackupSum()
	err := e.copyFiles(ctx, func(name string, size int64, content io.Reader) error {
		return addFile(out, name, size, sum.sumWhileRead(name, content))
	})
	if err == nil {
		err = sum.writeSum(out)
	}
	if err == nil {
		err = out.Close()
	}
	return err
}

// ReceiveInto creates a directory from the stream of [Engine.StreamTo], in the same way as [Engine.CopyInto].
func ReceiveInto(ctx context.Context, r io.Reader, dir string, try func(dir string) error) error {
	return intoNew(dir, func(partial string) error {
		in := tar.NewReader(readUntil{ctx, r})
		sum := newBackupSum()
		for {
			h, err := in.Next()
			switch {
			case errors.Is(err, io.EOF):
				return fmt.Errorf("stream ended before the backup did: %w", io.ErrUnexpectedEOF)
			case err != nil:
				return err
			case h.Name == backupEnd:
				return errors.Join(sum.verifySum(in), nothingMore(in))
			// The stream may come from another machine. If a name contained a directory, the file could be written
			// outside the new directory.
			case h.Typeflag != tar.TypeReg || h.Name == "" || filepath.Base(h.Name) != h.Name:
				return fmt.Errorf("stream has %q: want the files of a store", h.Name)
			}
			if err := writeFile(filepath.Join(partial, h.Name), sum.sumWhileRead(h.Name, in)); err != nil {
				return err
			}
		}
	}, try)
}

// nothingMore reads the rest of the stream, so the sender can finish, and refuses a file after the last one.
func nothingMore(in *tar.Reader) error {
	h, err := in.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("stream has %q after its end", h.Name)
}

// PartialSuffix is the end of the name of a copy that is not whole yet.
const PartialSuffix = ".partial"

// intoNew creates a directory: fill and try work on a directory with a temporary name, which intoNew renames at the
// end. So a directory with the wanted name is always complete, even after a kill.
func intoNew(dir string, fill, try func(partial string) error) (err error) {
	dir = filepath.Clean(dir)
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%w: want the name of a new directory", fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	partial := dir + PartialSuffix
	if _, err := os.Lstat(partial); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, fmt.Errorf("%w: %s is of a backup at work, or of one that was killed: then remove it",
			fs.ErrExist, partial))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	// The files are synced before the rename, and the rename takes effect as a whole, so a directory with the wanted
	// name is completely on the disk. The parent directory is synced after the rename, because the new name is stored
	// in the parent.
	if err := makeDir(machine, partial); err != nil {
		return err
	}
	if err := fill(partial); err != nil {
		return err
	}
	if err := syncDir(machine, partial); err != nil {
		return err
	}
	if err := try(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, dir); err != nil {
		return err
	}
	return syncDir(machine, filepath.Dir(dir))
}

// writeFile creates a file and syncs the file to the disk.
func writeFile(name string, content io.Reader) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownerFile)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// backupEnd is the name of the last file of a stream.
const backupEnd = "backup.end"

// backupSum is the content of the last file of a stream. The sum describes the files before.
type backupSum struct {
	Files int
	CRC   uint32 // of their names and contents
	hash  hash.Hash32
}

// newBackupSum returns an empty sum. newBackupSum uses the CRC polynomial for which processors have an instruction,
// because every byte of a backup is summed.
func newBackupSum() *backupSum {
	return &backupSum{hash: crc32.New(crc32.MakeTable(crc32.Castagnoli))}
}

// sumWhileRead returns a reader of a file that adds the file to the sum while the file is read.
func (s *backupSum) sumWhileRead(name string, content io.Reader) io.Reader {
	s.Files++
	_, _ = io.WriteString(s.hash, name) // never fails
	return io.TeeReader(content, s.hash)
}

// writeSum ends the stream with the sum. The sum comes last, because the sum is complete only then.
func (s *backupSum) writeSum(out *tar.Writer) error {
	s.CRC = s.hash.Sum32()
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: backupEnd, Mode: ownerFile, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// verifySum compares the received files with the sum at the end of the stream.
func (s *backupSum) verifySum(last io.Reader) error {
	var want backupSum
	if err := json.NewDecoder(last).Decode(&want); err != nil {
		return fmt.Errorf("read end of stream: %w", err)
	}
	if got := s.hash.Sum32(); want.Files != s.Files || want.CRC != got {
		return fmt.Errorf("%w: stream has %d files with checksum %08x: want %d with %08x", ErrCorrupt, s.Files, got,
			want.Files, want.CRC)
	}
	return nil
}

func addFile(out *tar.Writer, name string, size int64, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: ownerFile, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(out, content)
	return err
}
