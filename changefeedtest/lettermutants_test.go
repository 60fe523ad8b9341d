package changefeedtest_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// letterMutants are boxes with one defect.
var letterMutants = []mutant{
	onLetters("forgets the version before", "a letter comes back as it was put",
		badBox{put: func(ctx context.Context, b feed.LetterBox, l feed.DeadLetter) error {
			l.Change.Previous = nil
			return b.Put(ctx, l)
		}}),
	onLetters("keeps letters in memory", "letters outlive the box", badBox{anew: true}),
	onLetters("keeps the first of two", "a letter that is put again replaces the first",
		badBox{put: func(ctx context.Context, b feed.LetterBox, l feed.DeadLetter) error {
			for old, err := range b.Letters(ctx, l.Change.PartitionKey) {
				if err != nil || old.ID == l.ID {
					return err
				}
			}
			return b.Put(ctx, l)
		}}),
	onLetters("sorts letters by id", "letters of a key come in the order of their changes",
		badBox{read: func(all []feed.DeadLetter, key feed.PartitionKey) []feed.DeadLetter {
			slices.SortFunc(all, func(a, b feed.DeadLetter) int { return strings.Compare(a.ID, b.ID) })
			return slices.DeleteFunc(all, func(l feed.DeadLetter) bool {
				return key != "" && l.Change.PartitionKey != key
			})
		}}),
	onLetters("takes a key for its components", "each kind of partition key has its own letters",
		badBox{read: func(all []feed.DeadLetter, key feed.PartitionKey) []feed.DeadLetter {
			plain := func(k feed.PartitionKey) string {
				return strings.NewReplacer(`"`, "", ",", "").Replace(string(k))
			}
			return slices.DeleteFunc(all, func(l feed.DeadLetter) bool {
				return key != "" && plain(l.Change.PartitionKey) != plain(key)
			})
		}}),
	onLetters("parks text alone", "documents keep every byte",
		badBox{put: func(ctx context.Context, b feed.LetterBox, l feed.DeadLetter) error {
			l.Change.Body = []byte(strings.ToValidUTF8(string(l.Change.Body), "\ufffd"))
			return b.Put(ctx, l)
		}}),
	onLetters("parks a megabyte", "a document of nearly 2 MB can be parked",
		badBox{put: func(ctx context.Context, b feed.LetterBox, l feed.DeadLetter) error {
			if len(l.Change.Body) > 1<<20 {
				return errors.New("too large")
			}
			return b.Put(ctx, l)
		}}),
	onLetters("removes only what is there", "a letter that is removed is gone, and can be put again",
		badBox{remove: func(ctx context.Context, b feed.LetterBox, key feed.PartitionKey, id string) error {
			for l, err := range b.Letters(ctx, key) {
				if err != nil || l.ID == id {
					return errors.Join(err, b.Remove(ctx, key, id))
				}
			}
			return feed.ErrNotFound
		}}),
	onLetters("removes a key's letters", "letters can be removed while they are read",
		badBox{remove: func(ctx context.Context, b feed.LetterBox, key feed.PartitionKey, _ string) (err error) {
			for l, failed := range b.Letters(ctx, key) {
				err = errors.Join(err, failed, b.Remove(ctx, key, l.ID))
			}
			return err
		}}),
	onLetters("works for who has gone", "an ended context is an error",
		badBox{put: func(ctx context.Context, b feed.LetterBox, l feed.DeadLetter) error {
			return b.Put(context.WithoutCancel(ctx), l)
		}}),
}

// onLetters makes a mutant of a box.
func onLetters(name, caught string, defect badBox) mutant {
	suite := func(t *testing.T, _ changefeedtest.Harness) {
		changefeedtest.TestDeadLetters(t, func(t *testing.T) func() feed.LetterBox {
			in := letterContainer(t)
			return func() feed.LetterBox {
				if defect.anew {
					in = letterContainer(t)
				}
				b := defect
				b.LetterBox = letterBox(t, in)
				return b
			}
		})
	}
	return mutant{name, suite, caught, func(*changefeedtest.Harness) {}}
}

func letterContainer(t *testing.T) *docstore.Container {
	t.Helper()
	return create(t, open(t), docstore.ContainerSpec{ID: "letters", Paths: []string{deadletters.KeyPath}})
}

func letterBox(t *testing.T, in *docstore.Container) feed.LetterBox {
	t.Helper()
	b, err := deadletters.Container(in, "mailer", in)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// badBox has one method that is not what it should be.
type badBox struct {
	feed.LetterBox
	put    func(ctx context.Context, b feed.LetterBox, l feed.DeadLetter) error
	read   func(all []feed.DeadLetter, key feed.PartitionKey) []feed.DeadLetter // gets the letters of all keys
	remove func(ctx context.Context, b feed.LetterBox, key feed.PartitionKey, id string) error
	anew   bool // each box is another one
}

func (b badBox) Put(ctx context.Context, l feed.DeadLetter) error {
	if b.put == nil {
		return b.LetterBox.Put(ctx, l)
	}
	return b.put(ctx, b.LetterBox, l)
}

func (b badBox) Remove(ctx context.Context, key feed.PartitionKey, id string) error {
	if b.remove == nil {
		return b.LetterBox.Remove(ctx, key, id)
	}
	return b.remove(ctx, b.LetterBox, key, id)
}

func (b badBox) Letters(ctx context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	if b.read == nil {
		return b.LetterBox.Letters(ctx, key)
	}
	return func(yield func(feed.DeadLetter, error) bool) {
		var all []feed.DeadLetter
		for l, err := range b.LetterBox.Letters(ctx, "") {
			if err != nil {
				yield(l, err)
				return
			}
			all = append(all, l)
		}
		for _, l := range b.read(all, key) {
			if !yield(l, nil) {
				return
			}
		}
	}
}
