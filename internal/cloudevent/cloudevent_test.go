package cloudevent_test

import (
	"errors"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/cloudevent"
	"github.com/millrace/changefeed/outbox"
)

func TestAHeaderValueIsAnAttribute(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "", "plain/text:,;=": "plain/text:,;=", "Euro € 😀": "Euro%20%E2%82%AC%20%F0%9F%98%80", `a"b%c`: "a%22b%25c",
		"a\r\nb: c\x00\x7f": "a%0D%0Ab:%20c%00%7F",
	} {
		if got := cloudevent.Escape(value); got != want {
			t.Errorf("Escape(%q) = %s, want %s", value, got, want)
		}
		if got, err := cloudevent.Unescape(want); err != nil || got != value {
			t.Errorf("Unescape(%s) = %q, %v; want %q", want, got, err, value)
		}
	}
	for value, want := range map[string]string{"%41%e2%82%ac b": "A€ b", `"k\ \"k\""`: `k "k"`, `"`: `"`, `""`: ""} {
		if got, err := cloudevent.Unescape(value); err != nil || got != want {
			t.Errorf("of another sender, Unescape(%s) = %q, %v; want %q", value, got, err, want)
		}
	}
	for _, value := range []string{"%", "%4", "%zz", "%+1", "%FF", "a%C3"} {
		if got, err := cloudevent.Unescape(value); !errors.Is(err, cloudevent.ErrMalformed) {
			t.Errorf("Unescape(%s) = %q, %v; want an error", value, got, err)
		}
	}
}

func TestAMessageComesBackFromItsAttributes(t *testing.T) {
	t.Parallel()
	for _, m := range []outbox.Message{
		{ID: "1", Action: "Done", Source: "/things", Data: []byte(`{}`)},
		{ID: "1", Key: "k", Object: "o", Seq: 10, Action: "Done", Source: "/things", Data: []byte(`{}`)},
		{
			ID: "é", Key: "k y", Object: "k y", ObjectType: "thing", Action: "Done", Source: "/things", Seq: 1<<64 - 1,
			Time:        time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC),
			TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "a=1",
			Data: []byte(`{}`),
		},
	} {
		headers := map[string][]string{"Content-Type": {"application/json"}}
		for name, value := range m.CloudEvent() {
			headers["Ce-"+name] = []string{cloudevent.Escape(value)}
		}
		attributes, err := cloudevent.Attributes(headers)
		if err != nil || !maps.Equal(attributes, maps.Collect(m.CloudEvent())) {
			t.Errorf("Attributes: %q, %v", attributes, err)
		}
		if got, err := cloudevent.Message(attributes, m.Data); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("Message: %+v, %v; want %+v", got, err, m)
		}
	}
	for name, value := range map[string]string{"specversion": "0.3", "id": "", "time": "yesterday", "sequence": "-1"} {
		attributes := map[string]string{"specversion": "1.0", "id": "1", name: value}
		if _, err := cloudevent.Message(attributes, nil); !errors.Is(err, cloudevent.ErrMalformed) {
			t.Errorf("Message with %s %q: %v, want an error", name, value, err)
		}
	}
	for _, values := range [][]string{{"1", "2"}, {"%"}} {
		if _, err := cloudevent.Attributes(map[string][]string{"ce-id": values}); !errors.Is(err,
			cloudevent.ErrMalformed) {
			t.Errorf("Attributes of ce-id %q: %v, want an error", values, err)
		}
	}
}
