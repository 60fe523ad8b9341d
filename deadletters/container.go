package deadletters

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// KeyPath is the partition key path of a container for letters.
const KeyPath = "/key"

// Store is a container that can hold letters, such as *docstore.Container or *cosmos.Container.
type Store interface {
	feed.Committer
	feed.Source
}

// ContainerBox is a [feed.LetterBox] in a container. Each letter is a document with the partition key /key. This key is
// the text of the change's own partition key, such as ["London"], so that the letters of a key lie together:
//
//	{"id":"mailer.AQAAAIAAAAA=.4711.df8cf802…","key":"[\"London\"]","ttl":-1,"letter":{"id":"4711.df8cf802…","key":["London"],…}}
//
// The id begins with the name of the processor and the resource id of the monitored container. The ttl keeps letters if
// the container has a default time to live. If the documents of a letter are too large for one document, the letter
// names further documents, the parts. Units may share a container, also units with the same name that read different
// containers. A ContainerBox leaves foreign documents alone.
type ContainerBox struct {
	in        Store
	processor string
	source    string // DATABASE/CONTAINER
	prefix    string // of the ids of the letters' documents
}

// Monitored is the container that a unit reads, such as *docstore.Container or *cosmos.Container. Monitored
// distinguishes the unit from others with the same name.
type Monitored interface {
	Database() string
	ID() string
	RID() string // resource id, unique to the container
}

// Container returns the box of the unit with a processor name on the monitored container. If the container in is known
// to have another partition key path than [KeyPath], Container returns a [feed.ErrBadRequest] with the path.
func Container(in Store, processor string, monitored Monitored) (*ContainerBox, error) {
	b, err := unitless(in, processor)
	if err == nil {
		b.source = monitored.Database() + "/" + monitored.ID()
		b.prefix += escape(monitored.RID(), ".") + "."
	}
	return b, err
}

// Boxes finds the boxes of all units of a processor name with letters in a container, sorted by the containers that the
// units read. Boxes reads the whole container.
func Boxes(ctx context.Context, in Store, processor string) ([]*ContainerBox, error) {
	all, err := unitless(in, processor)
	if err != nil {
		return nil, err
	}
	found := map[string]*ContainerBox{}
	for page, err := range changefeed.Pull(ctx, in, feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
		changefeed.PullOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("find units %q: %w", processor, err)
		}
		for _, c := range page.Changes {
			rest, ours := strings.CutPrefix(c.ID, all.prefix)
			if !ours || isPart(c.Body) {
				continue
			}
			b := *all
			if b.source = sourceOf(c.Body); b.source != "" {
				rid, _, _ := strings.Cut(rest, ".")
				b.prefix += rid + "."
			}
			found[b.prefix] = &b
		}
	}
	return slices.SortedFunc(maps.Values(found), func(x, y *ContainerBox) int {
		return cmp.Or(cmp.Compare(x.source, y.source), cmp.Compare(x.prefix, y.prefix))
	}), context.Cause(ctx)
}

// Source returns the container whose changes are in the letters, DATABASE/CONTAINER. Source returns "" for letters of
// an older version, which did not distinguish units with the same name.
func (b *ContainerBox) Source() string { return b.source }

// sourceOf returns the source that the letter in a document names.
func sourceOf(text []byte) (source string) {
	_ = json.Unmarshal(rawjson.Lookup(text, "letter", "source"), &source)
	return source
}

// unitless returns the box of a processor without a unit, if the container is suitable for letters.
func unitless(in Store, processor string) (*ContainerBox, error) {
	if processor == "" {
		return nil, fmt.Errorf("%w: dead letters: processor name is empty: want one such as mailer", feed.ErrBadRequest)
	}
	if known, ok := in.(interface{ KeyPaths() [][]string }); ok {
		var paths []string
		for _, p := range known.KeyPaths() {
			paths = append(paths, "/"+strings.Join(p, "/"))
		}
		if !slices.Equal(paths, []string{KeyPath}) {
			return nil,
				fmt.Errorf("%w: dead letters of %q: the container is partitioned by %s: want one partitioned by %s",
					feed.ErrBadRequest, processor, strings.Join(paths, ","), KeyPath)
		}
	}
	return &ContainerBox{in: in, processor: processor, prefix: escape(processor, ".") + "."}, nil
}

// escape makes a text suitable for an id: the service refuses some characters.
func escape(text, more string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune(`/\?#%`+more, r) {
			fmt.Fprintf(&b, "%%%02X", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// maxKey is the largest partition key that the service accepts, in bytes.
const maxKey = 2048

// keyText returns the member key for a partition key: the text of the key. If the text, which is a little longer than
// the key's values, is too long for the service, keyText returns the beginning of the text with a hash.
func keyText(key feed.PartitionKey) string {
	if len(key) <= maxKey {
		return string(key)
	}
	sum := fmt.Sprintf("…%x", sha256.Sum256([]byte(key)))
	return strings.ToValidUTF8(string(key[:maxKey-len(sum)]), "") + sum
}

// Put writes the document of a letter. If the documents in the letter are too large even when compressed, they are
// divided into parts, which Put writes first.
func (b *ContainerBox) Put(ctx context.Context, l feed.DeadLetter) error {
	text, parts, err := b.envelopeOf(l)
	if err != nil {
		return err
	}
	for _, doc := range append(parts, text) { // the letter last, so that a letter exists with all parts or not at all
		if err == nil {
			_, err = b.commitWrites(ctx, l.Change.PartitionKey, feed.Write{Op: feed.WriteUpsert, Body: doc})
		}
	}
	if errors.Is(err, feed.ErrBadRequest) {
		err = fmt.Errorf("%w (letters want a container partitioned by %s)", err, KeyPath)
	}
	if err != nil {
		return fmt.Errorf("park letter %s of %s: %w", l.ID, l.Change.PartitionKey, err)
	}
	return nil
}

func (b *ContainerBox) id(letter string) string { return b.prefix + escape(letter, "") }

func (b *ContainerBox) commitWrites(ctx context.Context, key feed.PartitionKey, writes ...feed.Write) ([]feed.Result,
	error,
) {
	return b.in.Commit(ctx, feed.Key(keyText(key)), writes)
}

// getDocument reads a document of a key.
func (b *ContainerBox) getDocument(ctx context.Context, key feed.PartitionKey, id string) ([]byte, error) {
	results, err := b.commitWrites(ctx, key, feed.Write{Op: feed.WriteRead, ID: id})
	if err != nil {
		return nil, err
	}
	return results[0].Body, nil
}

// Remove deletes the document of a letter, together with the parts.
func (b *ContainerBox) Remove(ctx context.Context, key feed.PartitionKey, id string) error {
	if err := b.removeDocument(ctx, spelled(key), b.id(id)); err != nil && !errors.Is(err, feed.ErrNotFound) {
		return fmt.Errorf("remove letter %s of %s: %w", id, key, err)
	}
	return nil
}

func (b *ContainerBox) removeDocument(ctx context.Context, key feed.PartitionKey, id string) error {
	text, err := b.getDocument(ctx, key, id)
	if err != nil {
		return err
	}
	writes := []feed.Write{{Op: feed.WriteDelete, ID: id}}
	parts, _ := partsOf(text)
	for _, part := range parts {
		writes = append(writes, feed.Write{Op: feed.WriteDelete, ID: part})
	}
	_, err = b.commitWrites(ctx, key, writes...)
	if errors.Is(err, feed.ErrNotFound) { // a part may be missing: then nothing was deleted
		_, err = b.commitWrites(ctx, key, writes[0])
	}
	return err
}

// maxHeld bounds the bytes of letters in memory during sorting. Letters beyond that are read again, each by itself.
var maxHeld = 64 << 20

// filed is a letter found in the feed, either whole or to be read again.
type filed struct {
	letter feed.DeadLetter
	whole  bool
}

// Letters reads the feed of the container from the beginning, because only the feed reaches all documents in every
// store. Letters parked during the call may be missing. On an account whose consistency is session or weaker, letters
// parked just before the call may be missing too.
func (b *ContainerBox) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		all, err := b.findUnordered(ctx, spelled(key))
		if err != nil {
			yield(feed.DeadLetter{}, fmt.Errorf("read letters of %q: %w", b.processor, err))
			return
		}
		slices.SortFunc(all, func(x, y filed) int { return inOrder(&x.letter, &y.letter) })
		for _, f := range all {
			l, found := f.letter, true
			if !f.whole {
				if l, found, err = b.readAgain(ctx, f.letter.Change.PartitionKey, f.letter.ID); err != nil {
					yield(feed.DeadLetter{}, fmt.Errorf("read letters of %q: %w", b.processor, err))
					return
				}
			}
			if found && !yield(l, nil) {
				return
			}
		}
	}
}

// inOrder compares letters by key, and letters of the same key in the order of their changes.
func inOrder(x, y *feed.DeadLetter) int {
	return cmp.Or(cmp.Compare(x.Change.PartitionKey, y.Change.PartitionKey), cmp.Compare(x.Change.LSN, y.Change.LSN),
		cmp.Compare(x.Index, y.Index))
}

// findUnordered finds letters without sorting them. Beyond maxHeld bytes findUnordered keeps only the fields for the
// sorting.
func (b *ContainerBox) findUnordered(ctx context.Context, key feed.PartitionKey) (all []filed, err error) {
	var o changefeed.PullOptions
	in := feed.FullRange()
	if key != "" {
		o.Key = feed.Key(keyText(key))
		if in, err = b.rangeOf(ctx, o.Key); err != nil {
			return nil, err
		}
	}
	held := 0
	for page, err := range changefeed.Pull(ctx, b.in, in, feed.Position{Start: feed.FromBeginning()}, o) {
		if err != nil {
			return nil, err
		}
		for _, c := range page.Changes {
			if !strings.HasPrefix(c.ID, b.prefix) || isPart(c.Body) || b.source == "" && sourceOf(c.Body) != "" {
				continue
			}
			l, err := parse(rawjson.Lookup(c.Body, "letter"))
			parts, bad := partsOf(c.Body)
			err = cmp.Or(err, bad)
			if err != nil {
				return nil, fmt.Errorf("document %q of %s: %w", c.ID, c.PartitionKey, err)
			}
			// Letters are sorted by their changes, but a feed has letters in the order in which they were parked. So
			// all letters must be found before the first is yielded.
			held += len(c.Body)
			f := filed{l, held <= maxHeld && len(parts) == 0}
			if !f.whole {
				f.letter = feed.DeadLetter{
					ID: l.ID, Index: l.Index,
					Change: feed.Change{PartitionKey: l.Change.PartitionKey, LSN: l.Change.LSN},
				}
			}
			all = append(all, f)
		}
	}
	return all, context.Cause(ctx)
}

// rangeOf returns a range with only the letters of a key, in a single partition.
func (b *ContainerBox) rangeOf(ctx context.Context, key feed.PartitionKey) (feed.Range, error) {
	locator, ok := b.in.(feed.Locator)
	if !ok {
		return feed.FullRange(), nil
	}
	epk, err := locator.Locate(ctx, key)
	return feed.Range{Min: epk, Max: epk + "0"}, err
}

// readAgain reads a letter again. The letter may have been removed meanwhile.
func (b *ContainerBox) readAgain(ctx context.Context, key feed.PartitionKey, id string) (l feed.DeadLetter, found bool,
	err error,
) {
	for range 2 { // if a letter is removed between the reads of parts, the second try does not find it
		var text []byte
		if text, err = b.getDocument(ctx, key, b.id(id)); errors.Is(err, feed.ErrNotFound) {
			return l, false, nil
		}
		if err != nil {
			return l, false, err
		}
		if l, err = b.openEnvelope(ctx, key, text); !errors.Is(err, feed.ErrNotFound) {
			break
		}
	}
	return l, true, err
}
