package main

import (
	"strings"
	"testing"
)

// Characters that turn the text around them, or are not seen, are shown by their number where a document is edited, and
// what is saved still means them.
func TestInvisibleCharactersAreSeenWhereADocumentIsEdited(t *testing.T) {
	w := editable(t, 1)
	w.write(`{"id":"1","city":"Rome","to":"` + "\u202egro.live\u200b" + `","n":12345678901234567890}`)
	tab := w.store(ordersView+"documents", 1280)
	press(t, tab, "1")
	has(t, tab, documentText, `"to": "\u202egro.live\u200b"`)
	if text := evaluate[string](t, tab, documentText); strings.ContainsAny(text, "\u202e\u200b") {
		t.Errorf("the editor shows %q", text)
	}
	// somebody else writes: only what they have changed is a difference
	w.write(`{"id":"1","city":"Rome","to":"` + "\u202egro.live\u200b" + `","n":2}`)
	press(t, tab, "Save")
	shows(t, tab, "pre.difference del", `"n": 2`)
	if n := evaluate[int](t, tab, `document.querySelectorAll('pre.difference del').length`); n != 1 {
		t.Errorf("%d lines differ: want 1", n)
	}
	press(t, tab, "Write mine over it")
	shows(t, tab, ".detail .state", "Saved for")
	_, body, _ := get(t, w.ui+"store/item?container=shop/orders&id=1&key=Rome")
	if !strings.Contains(body, `\"to\":\"\\u202egro.live\\u200b\"`) || !strings.Contains(body, `12345678901234567890`) {
		t.Errorf("saved as %s", body)
	}
}
