package alarms_test

import (
	"fmt"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// putMany writes n documents at once.
func (s *stage) putMany(n int) {
	s.t.Helper()
	const keys = 50
	for key := range keys {
		city := fmt.Sprint("city-", key)
		for from := 0; from < n/keys; from += 10 {
			var writes []feed.Write
			for i := from; i < min(from+10, n/keys); i++ {
				id := fmt.Sprint("many-", key, "-", i)
				body := fmt.Appendf(nil, `{"id":%q,"city":%q}`, id, city)
				writes = append(writes, feed.Write{Op: feed.WriteUpsert, ID: id, Body: body})
			}
			_, err := s.orders.Commit(s.t.Context(), feed.Key(city), writes)
			s.check(err)
		}
	}
}

// reset has the unit handle all changes again.
func (s *stage) reset() {
	s.t.Helper()
	_, err := s.operate().Reset(s.t.Context(), admin.All(), feed.FromBeginning())
	s.check(err)
}

// pause has no instance handle any change.
func (s *stage) pause() {
	s.t.Helper()
	_, err := s.operate().Pause(s.t.Context(), admin.All())
	s.check(err)
}

// operate opens the unit as an operator does.
func (s *stage) operate() *admin.Unit {
	s.t.Helper()
	leases, err := docstore.NewLeases(s.t.Context(), s.leases, "mailer", s.orders)
	s.check(err)
	return admin.Open(s.orders, leases, admin.Options{})
}

// upgrade replaces an instance by one that runs another handler.
func (s *stage) upgrade(in *staged) {
	s.t.Helper()
	s.stop(in)
	s.pass(interval)
	s.start(in.name, in.unit, changefeed.Options{Variant: "mail.sh 2"})
}

// stop ends an instance in order. Its end takes a moment.
func (s *stage) stop(in *staged) {
	in.cancel()
	in.isAway = true
}
