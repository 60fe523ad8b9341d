package doctor

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// The checks of a store in a directory, and of containers in general.

// wantStore is the advice for a directory without a store.
const wantStore = "want the directory of a store, as changefeed import and create make"

// examineDirectory checks a store from the disk to the units.
func (p *patient) examineDirectory(ctx context.Context) {
	p.check(ctx, "directory", p.checkDirectory)
	if p.blocked == nil {
		p.check(ctx, "disk", p.checkDisk)
		p.check(ctx, "store", p.checkStore)
	}
	p.check(ctx, "containers", p.checkContainers)
	p.examineIntegrity(ctx)
	p.examineUnits(ctx)
}

// checkDirectory looks whether there is a directory.
func (p *patient) checkDirectory(context.Context) []Finding {
	const check = "directory"
	info, err := os.Stat(p.At.Dir)
	switch {
	case err == nil && info.IsDir():
		return []Finding{good(check, "", "%s", p.At.Dir)}
	case err == nil:
		err = errors.New("it is a file")
	}
	p.blocked = noStore
	f := failed(check, "", Fail, usage.Path("directory", p.At.Dir, err))
	f.Next = wantStore
	return []Finding{f}
}

// checkDisk looks how much space is free.
func (p *patient) checkDisk(context.Context) []Finding {
	free, size, err := diskSpace(p.At.Dir)
	if err != nil {
		return []Finding{unclear("disk", "", err)}
	}
	return []Finding{judgeDisk(free, size)}
}

// checkStore opens the store.
func (p *patient) checkStore(ctx context.Context) []Finding {
	whole := place.Store(p.At.Dir, "")
	whole.Field, whole.Given = p.At.Field, p.At.Given
	_, err := p.Opener.Names(ctx, whole)
	if err != nil {
		p.blocked = noStore
	}
	return []Finding{judgeOpening(err)}
}

// judgeOpening judges whether a store opens.
func judgeOpening(err error) Finding {
	const check = "store"
	switch {
	case err == nil:
		return good(check, "", "opens, and no other process has it open")
	case errors.Is(err, docstore.ErrInUse):
		return bad(check, "", Warn, "if that is changefeed serve, examine its address, such as http://127.0.0.1:8081",
			"another process has it open")
	case errors.Is(err, docstore.ErrCorrupt):
		return bad(check, "", Fail, "restore the directory from a backup, or save what can be read with changefeed export "+
			"--salvage", "%s", place.Plain(err))
	}
	f := failed(check, "", Fail, err)
	if errors.Is(err, docstore.ErrNotStore) || strings.Contains(f.Found, "there is no store") {
		f.Next = wantStore
	}
	return f
}

// judgeIntegrity judges the result of a check of all invariants; an account has none.
func judgeIntegrity(violations []docstore.Violation, err error, documents int64) []Finding {
	const check = "integrity"
	switch {
	case len(violations) > 0:
		return []Finding{bad(check, "", Fail, "keep a copy of the store, and see changefeed check", "%s, such as %v",
			terminal.Count(len(violations), "violation"), violations[0])}
	case errors.Is(err, feed.ErrNotFound), errors.Is(err, feed.ErrBadRequest):
		return nil // no changefeed serve
	case errors.Is(err, feed.ErrForbidden):
		return []Finding{unknown(check, "", "the key may not check the store", "use the read-write key")}
	case err != nil:
		return []Finding{unclear(check, "", err)}
	}
	return []Finding{good(check, "", "%s, no violation", terminal.Count(documents, "document"))}
}

// judgeMissing judges an error of the list of containers.
func judgeMissing(at place.Address, err error) Finding {
	const check = "containers"
	switch {
	case errors.Is(err, feed.ErrForbidden):
		return unknown(check, "", place.Plain(err), "give the identity the right to read metadata, or the address of a "+
			"container")
	case errors.Is(err, place.ErrNoContainer) && at.Container != "":
		f := failed(check, "", Fail, err)
		f.Next += "; if a lease container was deleted, the positions of its units are lost: restore a snapshot of them, or " +
			"say with --from where each unit begins"
		return f
	}
	return failed(check, "", Fail, err)
}

// addressOf returns the address of a listed container.
func (p *patient) addressOf(c items.Container) place.Address {
	at := p.At
	at.Database, at.Container, _ = strings.Cut(c.Name, "/")
	return at
}
