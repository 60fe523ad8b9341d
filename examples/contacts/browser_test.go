package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var (
	browserPath = flag.String("browser", "", "a Chromium to try the page in, as make page does")
	screenshots = flag.String("screenshots", "", "directory for pictures of the page")
)

// browser is a Chromium without a window, at the other end of two pipes.
type browser struct {
	*testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	last    int
}

func startBrowser(t *testing.T, path string) *browser {
	t.Helper()
	theirIn, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(
		t.Context(), path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run",
		"--remote-debugging-pipe", "--window-size=1280,860", "--user-data-dir="+t.TempDir(), "about:blank",
	)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	b := &browser{T: t, to: to, from: bufio.NewReader(from)}
	t.Cleanup(func() {
		_ = to.Close() // which ends it
		_ = cmd.Wait()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	return b
}

// call calls a method of the DevTools protocol. Its events are passed over.
func (b *browser) call(method string, params, result any) {
	b.Helper()
	b.last++
	request := map[string]any{"id": b.last, "method": method, "params": params}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	text, err := json.Marshal(request)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.Fatal(err)
	}
	for {
		line, err := b.from.ReadBytes(0)
		if err != nil {
			b.Fatal(err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &answer); err != nil {
			b.Fatal(err)
		}
		if answer.ID != b.last {
			continue
		}
		if answer.Error != nil {
			b.Fatalf("%s: %s", method, answer.Error)
		}
		if result != nil {
			if err := json.Unmarshal(answer.Result, result); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
}

// page has the functions that the test calls in the page: each waits until what it wants is there.
const pageFunctions = `
globalThis.until = async (what, f) => {
	for (let n = 0; n < 200; n++) { const v = f(); if (v) return v; await new Promise(r => setTimeout(r, 25)); }
	throw new Error("never: " + what + "; the page has " + document.body.innerText);
};
globalThis.button = text => until("button " + text, () => [...document.querySelectorAll("button")].find(b => b.innerText.includes(text)));
globalThis.fill = (name, value) => { document.querySelector("input[name=" + name + "]").value = value; };
globalThis.shows = text => until(text, () => document.body.innerText.includes(text));
globalThis.saved = times => until("saved", () => document.body.innerText.split("Saved.").length === times + 1);
globalThis.event = text => until("event " + text, () => [...document.querySelectorAll("#events tr")].find(r => r.innerText.includes(text)));
`

// run runs statements in the page.
func (b *browser) run(statements string) {
	b.Helper()
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails struct{ Exception struct{ Description string } }
	}
	b.call("Runtime.evaluate", map[string]any{
		"expression":   "(async () => {" + statements + "})()",
		"awaitPromise": true,
	}, &got)
	if failed := got.ExceptionDetails.Exception.Description; failed != "" {
		b.Fatalf("%s: %s", statements, failed)
	}
}

// shoot takes a picture.
func (b *browser) shoot(name string) {
	b.Helper()
	if *screenshots == "" {
		return
	}
	var picture struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &picture)
	png, err := base64.StdEncoding.DecodeString(picture.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func TestThePageInABrowser(t *testing.T) {
	if *browserPath == "" {
		t.Skip("needs a Chromium: make page, or -browser PATH")
	}
	p := startProgram(t, "--data", t.TempDir())
	go func() { // what is printed is not looked at here
		for p.lines.Decode(new(received)) == nil {
		}
	}()
	b := startBrowser(t, *browserPath)
	b.call("Page.navigate", map[string]any{"url": p.url + "/"}, nil)
	for tries := 0; ; tries++ {
		var got struct{ Result struct{ Value string } }
		b.call("Runtime.evaluate", map[string]any{"expression": "location.protocol + document.readyState"}, &got)
		if got.Result.Value == "http:complete" {
			break
		}
		if tries > 10_000 {
			t.Fatalf("the page is %s", got.Result.Value)
		}
	}
	b.run(pageFunctions)
	b.run(`await shows("No contacts yet."); await shows("live")`)
	b.shoot("empty")

	// A wrong form says what is wrong, a right one makes a contact, and its event arrives.
	b.run(`(await button("New contact")).click(); fill("firstName", "Ada"); fill("email", "x"); (await button("Add")).click();
		await shows("must be an email address, or null"); if (document.body.innerText.split("must not be blank").length !== 3) throw new Error(document.body.innerText)`)
	b.shoot("faults")
	b.run(`fill("lastName", "Lovelace"); fill("email", "ada@example.com"); fill("companyName", "Analytical Engines"); (await button("Add")).click();
		await shows("Ada Lovelace"); await event("Created")`)

	for _, body := range []string{
		`{"firstName":"Grace","lastName":"Hopper","companyName":"Eckert–Mauchly","email":"grace@example.com"}`,
		`{"firstName":"Alan","lastName":"Turing","companyName":"National Physical Laboratory"}`,
		`{"firstName":"Barbara","lastName":"Liskov","companyName":"MIT","email":"barbara@example.com"}`,
		`{"firstName":"<b>Bobby</b>","lastName":"Tables","companyName":"<script>alert(1)</script>"}`,
	} {
		path := p.send("POST", root, body) // as another program does
		p.send("POST", path+"/update-description", `{"description":"met in London"}`)
	}
	b.run(`await shows("<b>Bobby</b> Tables"); await shows("Barbara Liskov")`)

	// Each form changes the contact under the ETag that the page has.
	b.run(`(await button("Ada Lovelace")).click(); await button("Rename"); fill("lastName", "King"); (await button("Rename")).click(); await saved(1); await event("Name Updated"); await shows("Ada King")`)
	b.run(`fill("city", "London"); (await button("Set company")).click(); await saved(2); await event("Company Updated")`)
	b.run(`fill("description", "First programmer"); (await button("Describe")).click(); await saved(3); await until("described", () => [...document.querySelectorAll("#events tr")].some(r => r.innerText.includes("Description Updated") && r.innerText.includes("Ada King")))`)
	b.shoot("editing")
	b.run(`const id = document.querySelector("#events tr small").title;
		await fetch("/api/contacts/" + id + "/update-name", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({firstName: "Augusta", lastName: "King"})});
		await shows("Augusta King"); (await button("Set email")).click(); await shows("mid-air collision")`)
	b.run(`(await button("Read again")).click(); await until("read again", () => document.querySelector("input[name=firstName]").value === "Augusta");
		fill("email", "augusta@example.com"); (await button("Set email")).click(); await saved(1); await event("Email Updated")`)
	b.narrow()
	b.run(`(await button("Done")).click(); const row = await button("Augusta King");
		await until("focus on the contact", () => document.activeElement.innerText.includes("Augusta King"));
		row.click(); await button("Delete contact"); await until("focus in the form", () => document.activeElement.tagName === "INPUT"); (await button("Delete contact")).click();
		await event("Deleted"); await until("gone from the list", () => !document.getElementById("list").innerText.includes("Augusta"))`)
	b.shoot("events")
	var rows struct{ Result struct{ Value float64 } }
	b.call("Runtime.evaluate", map[string]any{"expression": `document.querySelectorAll("#events tr").length`}, &rows)
	if rows.Result.Value != 15 {
		t.Errorf("the page shows %v events, want 15, each once", rows.Result.Value)
	}
}

// narrow has the page as wide as a small telephone: the table of events is scrolled, and nothing is cut off.
func (b *browser) narrow() {
	b.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": 360, "height": 740, "deviceScaleFactor": 1,
		"mobile": true,
	}, nil)
	b.run(`const scroll = document.querySelector(".scroll"), table = scroll.querySelector("table");
		if (document.documentElement.scrollWidth > 360) throw new Error("the page is " + document.documentElement.scrollWidth + " px wide");
		scroll.scrollLeft = 10_000; scroll.focus();
		if (table.getBoundingClientRect().right > scroll.getBoundingClientRect().right + 1) throw new Error("the table is cut off at " + table.getBoundingClientRect().right);
		if (document.activeElement !== scroll) throw new Error("the table cannot be scrolled with the keyboard")`)
	b.shoot("narrow")
	b.call("Emulation.clearDeviceMetricsOverride", map[string]any{}, nil)
}
