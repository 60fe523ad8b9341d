package outbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed/outbox"
)

func TestStrangerSizeEdge(t *testing.T) {
	for _, total := range []int{2<<20 - 400, 2<<20 - 300, 2<<20 - 250, 2<<20 - 200, 2<<20 - 150, 2<<20 - 130, 2<<20 - 120, 2<<20 - 110, 2<<20 - 100, 2<<20 - 90, 2<<20 - 60, 2<<20 - 30, 2 << 20} {
		contacts, _ := open(t)
		d := docOf("c1", &contact{Name: strings.Repeat("x", total)})
		u := outbox.NewUnit(contacts, outbox.Options{})
		u.Create(d)
		err := u.Commit(t.Context())
		t.Logf("%d: %v", total-2<<20, err)
		if err != nil && !errors.Is(err, outbox.ErrTooLarge) {
			t.Errorf("%d: not ErrTooLarge: %v", total-2<<20, err)
		}
		if err == nil {
			if _, err := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1"); err != nil {
				t.Error(err)
			}
		}
	}
}
