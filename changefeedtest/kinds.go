package changefeedtest

import "github.com/millrace/changefeed/feed"

// kindCases test records of all kinds in the same store.
var kindCases = []leaseCase{
	{name: "records belong to who writes and who reads them", test: recordsAreCopied},
	{name: "every kind is listed, each with its own names", test: kindsListed},
	{name: "kinds and states of later versions are kept", test: laterKept},
}

// kindsListed writes records of different kinds with equal tokens: each has its own
// document.
func kindsListed(d *leaseTest) {
	var want []string
	for _, record := range []feed.Record{
		lease("0"), lease("1"), lease("-1F"),
		{Kind: feed.KindHost, Token: "0"},
		{Kind: feed.KindHost, Token: "-1F"},
		{Kind: feed.KindHost, Token: "lock"},
		{Kind: feed.KindInfo},
		{Kind: feed.KindLock},
		{Kind: feed.KindHistory},
	} {
		d.create(record)
		want = append(want, name(record))
	}
	d.wantNames("all kinds", d.list(), want...)
	for _, kind := range []feed.Kind{feed.KindInfo, feed.KindLock} {
		_, err := d.store.Create(d.Context(), feed.Record{Kind: kind})
		d.wantErr("a second "+string(kind), err, feed.ErrConflict)
	}
}

// laterKept writes records of a kind, and a lease and a host in states, all unknown to this version. If a store took
// such a record for a lease, or lost its state, the record would receive an owner although a newer processor relies on
// it.
func laterKept(d *leaseTest) {
	paused, draining := full("-FF"), feed.Record{Kind: feed.KindHost, Token: "h", Owner: "h", State: "draining"}
	paused.State = "paused"
	var want []string
	var kept []feed.Record
	for _, record := range []feed.Record{
		{Kind: "control"}, {
			Kind: "control", Token: "a/b.c", Owner: "h1", Epoch: "e1", State: "asked",
			Properties: map[string]string{"pause": "all"},
		}, paused, draining,
	} {
		kept = append(kept, d.create(record))
		want = append(want, name(record))
	}
	known := d.create(lease("0"))
	known.Owner = "a"
	d.update(known)
	listed := d.list()
	d.wantNames("with kinds of later versions", listed, append(want, name(known))...)
	for _, record := range kept {
		d.wantSame("List after another record was written", listed[name(record)], record)
		if got := listed[name(record)].ETag; got != record.ETag {
			d.Errorf("ETag of %s is %s after another record was written, want %s", name(record), got, record.ETag)
		}
		record.Owner, record.State = "another", "later"
		d.update(record)
		d.wantSame("List after an update", d.list()[name(record)], record)
		d.remove(d.list()[name(record)])
	}
	if _, err := d.store.Create(d.Context(), feed.Record{Token: "1"}); err == nil {
		d.Error("Create of a record without a kind: nil, want an error")
	}
	d.wantNames("in the end", d.list(), name(known))
}

// recordsAreCopied changes the written records, the results of writes, and the listed records. The store must keep its
// own copy.
func recordsAreCopied(d *leaseTest) {
	change := func(l feed.Record) {
		l.Properties["team"] = "changed"
		l.Properties["more"] = "added"
		for i := range l.Raw {
			l.Raw[i] = 'x'
		}
	}
	given := full("-FF")
	created := d.create(given)
	change(given)
	d.wantSame("List after what was created has changed", d.list()[name(given)], full("-FF"))
	change(created)
	d.wantSame("List after the answer of Create has changed", d.list()[name(given)], full("-FF"))
	given = d.list()[name(given)]
	updated := d.update(given)
	change(given)
	change(updated)
	d.wantSame("List after an update and its answer have changed", d.list()[name(given)], full("-FF"))
	change(d.list()[name(given)])
	d.wantSame("List after the last listing has changed", d.list()[name(given)], full("-FF"))
}
