package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// pressIn clicks a button by its text, within an element.
func pressIn(t *testing.T, tab context.Context, within, text string) {
	t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%q)].find((b) => b.innerText === %q && b.checkVisibility() && !b.disabled)`,
		within+" button", text)
	do(t, tab, chromedp.Poll(find, nil), chromedp.Click(find, chromedp.ByJSPath))
}

// closed waits until no dialog is open.
func closed(t *testing.T, tab context.Context) {
	t.Helper()
	eventually(t, "the dialog is closed", func() error {
		if n := evaluate[int](t, tab, "document.querySelectorAll('dialog').length"); n != 0 {
			return fmt.Errorf("%d dialogs", n)
		}
		return nil
	})
}

// A pause that was asked for stays when the dialog closes, also before the page says that it is done.
func TestAPauseStaysWhenTheDialogCloses(t *testing.T) {
	w := newWorld(t, 2)
	w.write(`{"id":"1","city":"Rome"}`)
	tab := page(t, w.instance("a", succeeds, "--ui-write").dashboard(t), 1280, 900)
	shows(t, tab, ".legend", "a: 2")
	for _, waits := range []bool{false, true} {
		pressIn(t, tab, ".unit > .buttons", "Pause")
		shows(t, tab, "dialog .lines", "would pause lease ")
		typed(t, tab, "dialog input", "the mail moves")
		pressIn(t, tab, "dialog", "Pause")
		if waits {
			shows(t, tab, "dialog .lines", "paused lease ")
		}
		do(t, tab, chromedp.KeyEvent(kb.Escape))
		closed(t, tab)
		shows(t, tab, ".legend", "nobody: 2")
		do(t, tab, chromedp.Reload())
		shows(t, tab, ".findings", "the mail moves")
		shows(t, tab, ".legend", "nobody: 2")
		pressIn(t, tab, ".unit > .buttons", "Resume")
		pressIn(t, tab, "dialog", "Resume")
		shows(t, tab, "dialog .lines", "resumed lease ")
		pressIn(t, tab, "dialog", "Close")
		shows(t, tab, ".legend", "a: 2")
	}
}

// typed types a text into a field in place of another.
func typed(t *testing.T, tab context.Context, selector, text string) {
	t.Helper()
	do(t, tab, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).select()", selector), nil),
		chromedp.SendKeys(selector, text))
}

// A unit is paused, resumed and reset on the page, which says before what that would do, and after it what was done.
func TestAUnitIsSteeredOnThePage(t *testing.T) {
	w := newWorld(t, 2)
	w.write(`{"id":"1","city":"Rome"}`, `{"id":"2","city":"Oslo"}`)
	tab := page(t, w.instance("a", succeeds, "--ui-write").dashboard(t), 1280, 900)
	shows(t, tab, ".sentence", "nothing behind")
	shows(t, tab, "#may", "You can steer units on this page")

	pressIn(t, tab, ".unit > .buttons", "Pause")
	shows(t, tab, "dialog .lines", "would pause lease ")
	shows(t, tab, "dialog", "Nothing is done yet.")
	do(t, tab, chromedp.KeyEvent(kb.Escape)) // nothing is done
	closed(t, tab)
	if text := evaluate[string](t, tab, "document.activeElement.innerText"); text != "Pause" {
		t.Errorf("after Escape the focus is on %q, want the button", text)
	}
	shows(t, tab, ".legend", "a: 2")

	pressIn(t, tab, ".unit > .buttons", "Pause")
	typed(t, tab, "dialog input", "INC-7: <b>mail</b> is down")
	pressIn(t, tab, "dialog", "Pause")
	shows(t, tab, "dialog .lines", "paused lease ")
	shows(t, tab, "dialog", "Done.")
	pressIn(t, tab, "dialog", "Close")
	shows(t, tab, ".legend", "nobody: 2")
	shows(t, tab, ".findings", "INC-7: <b>mail</b> is down")

	pressIn(t, tab, ".unit > .buttons", "Resume")
	pressIn(t, tab, "dialog", "Resume")
	shows(t, tab, "dialog .lines", "resumed lease ")
	pressIn(t, tab, "dialog", "Close")
	shows(t, tab, ".legend", "a: 2")

	pressIn(t, tab, ".unit > .buttons", "Reset…")
	typed(t, tab, "dialog input", "next week")
	shows(t, tab, "dialog .failed", `to is "next week": want beginning, now, a time`)
	typed(t, tab, "dialog input", "beginning")
	shows(t, tab, "dialog .lines", ": 1 change again")
	pressIn(t, tab, "dialog", "Reset")
	shows(t, tab, "dialog", "Done.")
	shows(t, tab, "dialog .lines", "reset lease ")
}

// tabTo walks by Tab to the element that begins with a text, or whose label does.
func tabTo(t *testing.T, tab context.Context, until string) {
	t.Helper()
	for range 80 {
		do(t, tab, chromedp.KeyEvent(kb.Tab))
		text := `(document.activeElement.closest('label') ?? document.activeElement).innerText.trim()`
		if strings.HasPrefix(evaluate[string](t, tab, text), until) {
			return
		}
	}
	t.Fatalf("no way by Tab to %q", until)
}

// enter presses Enter.
func enter(t *testing.T, tab context.Context) {
	t.Helper()
	do(t, tab, chromedp.KeyEvent(kb.Enter))
}

// One lease is steered by keyboard alone, and its failing change is skipped.
func TestALeaseIsSteeredByKeyboard(t *testing.T) {
	w := newWorld(t, 1)
	w.write(`{"id":"good","city":"Oslo"}`, `{"id":"<b>bad</b>","city":"Rome","bad":true}`)
	tab := page(t, w.instance("a", fails, "--ui-write").dashboard(t), 1280, 900)
	shows(t, tab, ".findings", "failure")
	tabTo(t, tab, "-FF")
	enter(t, tab)
	shows(t, tab, ".detail", "What is known")
	tabTo(t, tab, "Skip…")
	enter(t, tab)
	shows(t, tab, "dialog .lines", `would skip change "<b>bad</b>"`)
	shows(t, tab, "dialog", "Choose the changes to skip.")
	tabTo(t, tab, `would skip change "<b>bad</b>"`)
	do(t, tab, chromedp.KeyEvent(" "))
	shows(t, tab, "dialog", "1 of 2 changes are chosen.")
	tabTo(t, tab, "Skip")
	enter(t, tab)
	shows(t, tab, "dialog .lines", `skipped change "<b>bad</b>"`)
	enter(t, tab) // the focus is on Close
	closed(t, tab)
	shows(t, tab, ".sentence", "nothing behind")
}

// held opens the page of an instance with a key that is held: it has a letter that has failed, and one that is held.
func held(t *testing.T) (*world, context.Context) {
	t.Helper()
	w := newWorld(t, 1)
	w.command("create", w.url+"/shop/letters", "--pk", "/key")
	w.write(`{"id":"1","city":"Rome","bad":true}`, `{"id":"2","city":"Rome"}`)
	a := w.instance("a", fails, "--ui-write", "--hold", "--max-attempts", "1", "--batch-size", "1",
		"--dead-letters", w.url+"/shop/letters")
	tab := page(t, a.dashboard(t), 1280, 900)
	shows(t, tab, "#events", "disposition held")
	return w, tab
}

// All other actions work by keyboard alone too. After each the focus is where it was, or on what comes next.
func TestAllActionsWorkByKeyboard(t *testing.T) {
	_, tab := held(t)
	act := func(button, confirm, done string) {
		t.Helper()
		tabTo(t, tab, button)
		enter(t, tab)
		shows(t, tab, "dialog", "Nothing is done yet.")
		tabTo(t, tab, confirm)
		enter(t, tab)
		shows(t, tab, "dialog", done)
		shows(t, tab, "dialog", "Close")
		enter(t, tab) // the focus is on Close
		closed(t, tab)
	}
	act("Pause", "Pause", "paused lease ")
	act("Resume", "Resume", "resumed lease ")
	tabTo(t, tab, "Dead letters")
	enter(t, tab)
	shows(t, tab, ".unit > details", "held")
	act("Retry…", "Retry", "the handler has failed again")
	act("Release", "Release", "1 held letter handled")
	act("Remove…", "Remove", "removed letter 1.")
	tabTo(t, tab, "Reset…")
	enter(t, tab)
	tabTo(t, tab, "Continue at")
	do(t, tab, chromedp.KeyEvent("1h"))
	shows(t, tab, "dialog .lines", "would reset lease ")
	tabTo(t, tab, "Reset")
	enter(t, tab)
	shows(t, tab, "dialog", "Done.")
}

// Dead letters are retried, released and removed on the page.
func TestLettersAreSteeredOnThePage(t *testing.T) {
	w, tab := held(t)
	do(t, tab, chromedp.Click(".unit > details > summary"))
	shows(t, tab, ".unit > details", "held")
	server := page(t, w.ui, 1280, 900) // which finds the letters beside the leases
	do(t, server, chromedp.Click(".unit > details > summary"))
	shows(t, server, ".unit > details", "held")

	pressIn(t, tab, ".unit > details", "Retry…")
	shows(t, tab, "dialog .lines", "would give the handler letter 1.")
	pressIn(t, tab, "dialog", "Retry")
	shows(t, tab, "dialog .failed", "the handler has failed again")
	pressIn(t, tab, "dialog", "Close")

	pressIn(t, tab, ".unit > details", "Release")
	shows(t, tab, "dialog .lines", `would let key ["Rome"] go on`)
	pressIn(t, tab, "dialog", "Release")
	shows(t, tab, "dialog .lines", "1 held letter handled")
	pressIn(t, tab, "dialog", "Close")

	pressIn(t, tab, ".unit > details", "Remove…")
	shows(t, tab, "dialog .lines", "afterwards nothing remembers")
	pressIn(t, tab, "dialog", "Remove")
	shows(t, tab, "dialog .lines", "removed letter 1.")
	pressIn(t, tab, "dialog", "Close")
	shows(t, tab, ".unit > details", "No dead letter is waiting in "+w.url+"/shop/letters.")
}

// A key stays held when its letters are removed, and is released from the list of keys or from its lease, whose
// explanation is renewed.
func TestAHeldKeyWithoutLettersIsReleasedOnThePage(t *testing.T) {
	w, tab := held(t)
	do(t, tab, chromedp.Click("button.token"))
	shows(t, tab, ".detail", `Release ["Rome"]`)
	do(t, tab, chromedp.Click(".unit > details > summary"))
	for range 2 {
		pressIn(t, tab, ".unit > details", "Remove…")
		shows(t, tab, "dialog .lines", "if the key is held, it stays held until it is released")
		pressIn(t, tab, "dialog", "Remove")
		shows(t, tab, "dialog", "Done.")
		pressIn(t, tab, "dialog", "Close")
		closed(t, tab)
	}
	shows(t, tab, ".unit > details", "No dead letter is waiting in "+w.url+"/shop/letters.")
	pressIn(t, tab, ".unit > details", `Release ["Rome"]`)
	pressIn(t, tab, "dialog", "Release")
	shows(t, tab, "dialog .lines", "0 held letters handled")
	pressIn(t, tab, "dialog", "Close")
	eventually(t, "the key is not held any more, and neither says the lease", func() error {
		text := evaluate[string](t, tab, "document.querySelector('.unit').innerText")
		if strings.Contains(text, "Release") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
}

// Without --ui-write the page has no buttons, and the dashboard refuses what they would send.
func TestAPageThatOnlyReadsHasNoButtons(t *testing.T) {
	w := newWorld(t, 1)
	url := w.instance("a", succeeds).dashboard(t)
	tab := page(t, url, 1280, 900)
	shows(t, tab, ".legend", "a: 1")
	shows(t, tab, "#may", "This page only reads")
	do(t, tab, chromedp.Click("button.token"))
	shows(t, tab, ".detail", "What is known")
	if n := evaluate[int](t, tab, "[...document.querySelectorAll('.act')].filter((b) => b.checkVisibility()).length"); n != 0 {
		t.Errorf("%d buttons act on the unit", n)
	}
	send := `fetch('/steer', {method: 'POST', headers: {'Content-Type': 'application/json'},
		body: '{"unit":"mailer","action":"pause"}'}).then((r) => r.status)`
	var status int
	do(t, tab, chromedp.Evaluate(send, &status, awaitPromise))
	if status != 405 {
		t.Errorf("a command is answered with %d, want 405", status)
	}
}

// The dialog is for everybody too.
func TestTheDialogIsForEverybody(t *testing.T) {
	rules := axe(t)
	w := newWorld(t, 2)
	w.write(`{"id":"1","city":"Rome"}`)
	url := w.instance("a", succeeds, "--ui-write").dashboard(t)
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 1280} {
			t.Run(fmt.Sprintf("%s at %d", theme, width), func(t *testing.T) {
				tab := page(t, "about:blank", width, 900)
				prefers := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}
				do(t, tab, emulation.SetEmulatedMedia().WithFeatures(prefers), chromedp.Navigate(url))
				pressIn(t, tab, ".unit > .buttons", "Reset…")
				shows(t, tab, "dialog", "Say where to continue.")
				typed(t, tab, "dialog input", "beginning")
				shows(t, tab, "dialog .lines", "would reset lease ")
				do(t, tab, picture(fmt.Sprintf("dialog-%s-%d", theme, width)))
				isClean(t, tab, rules, width)
			})
		}
	}
}

// isClean checks that a page has no violation of the rules of axe-core, and does not scroll sideways.
func isClean(t *testing.T, tab context.Context, rules string, width int64) {
	t.Helper()
	if got := evaluate[int64](t, tab, "document.documentElement.scrollWidth"); got > width {
		t.Errorf("the page is %d wide", got)
	}
	var found []struct {
		ID    string
		Help  string
		Nodes []struct{ HTML, FailureSummary string }
	}
	do(t, tab, chromedp.Evaluate(rules, nil), chromedp.Evaluate(
		"axe.run().then((r) => r.violations)", &found, chromedp.EvalAsValue, awaitPromise))
	for _, v := range found {
		t.Errorf("%s: %s: %+v", v.ID, v.Help, v.Nodes)
	}
}
