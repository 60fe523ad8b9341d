package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A stage is a directory within the store's directory, with the files of one moment. If the file system supports
// links, the files are links. Then a stage takes no space, and the library may delete the originals meanwhile. A
// stage exists while a backup is read.
const (
	stagePrefix = "backup-"
	stageSuffix = ".tmp"
)

// copyFiles calls visit for the files of the store in one state. The state contains every write acknowledged before
// the call.
func (e *Engine) copyFiles(ctx context.Context, visit func(name string, size int64,
	content io.Reader) error,
) (err error) {
	if !e.use.enter() {
		return ErrClosed
	}
	defer e.use.leave()
	g := e.guard
	stage := g.PathJoin(g.dir, stagePrefix+rand.Text()+stageSuffix)
	if err := e.db.checkpoint(stage); err != nil {
		return errors.Join(err, g.FS.RemoveAll(stage))
	}
	defer func() { err = errors.Join(err, g.FS.RemoveAll(stage)) }()
	// If the guard has broken meanwhile, the flush of the log was pretended, and the stage may lack acknowledged
	// writes.
	if err := g.err(); err != nil {
		return err
	}
	names, err := g.FS.List(stage)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := e.copyFile(ctx, stage, name, visit); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

// copyFile passes a staged file to visit. copyFile does not read through the guard, because if the copy cannot be
// read, the backup has failed, not the store.
func (e *Engine) copyFile(ctx context.Context, stage, name string,
	visit func(string, int64, io.Reader) error,
) (err error) {
	file, err := e.guard.FS.Open(e.guard.PathJoin(stage, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return visit(name, info.Size(), readUntil{ctx, file})
}

// dropStages removes the stages of killed backups.
func (e *Engine) dropStages() error {
	g := e.guard
	names, err := g.FS.List(g.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, stagePrefix) && strings.HasSuffix(name, stageSuffix) {
			if err := g.FS.RemoveAll(g.PathJoin(g.dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readUntil reads until ctx ends. Otherwise the copy of a large file would go on after its caller has returned.
type readUntil struct {
	ctx context.Context
	r   io.Reader
}

// Read reads the next bytes.
func (u readUntil) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(b)
}
