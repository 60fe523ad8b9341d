package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

var texts = []string{
	``, ` `, `null`, ` true `, `false`, `nul`, `nulll`, `truefalse`, `0`, `-0`, `-`, `01`, `1.`, `1.5`, `.5`, `1e5`, `1E+5`, `1e-`, `+1`, `1 2`,
	`""`, `"`, `"a`, `"a\"`, `"a\\"`, `"\u00e9"`, `"\u00e"`, `"\q"`, `"\`, "\"a\tb\"", "\"1234567\x1f\"", "\"12345678\x1f\"", `"1234567\n89"`, "\"\xff\x80\"", `"é鱀😀"`,
	`"1234567"`, `"12345678"`, `"123456789"`, `"!!!!!!!!"`, `"aaaaaaa\"aaaaaaaa"`, "\"\x7f\"",
	`{}`, `{ }`, `{"a":1}`, `{"a" : 1 , "b" : [ ] }`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{1:1}`, `{"a":1 "b":2}`, `{"a":1`, `{"a":1]`,
	`[]`, `[ ]`, `[1]`, `[1,2 , "x",{"a":[null]}]`, `[1,]`, `[,]`, `[1 2]`, `[`, `]`, `[1}`, `[[[]]]`, `[[[]]`, "\ufeff{}", "\x00",
	strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
}

func TestValid(t *testing.T) {
	for _, text := range texts {
		if got, want := Valid([]byte(text)), json.Valid([]byte(text)); got != want {
			t.Errorf("Valid(%.40q) is %v, want %v", text, got, want)
		}
	}
}

// Each byte, at each place of the eight that are looked at together.
func TestValidBytes(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			text := bytes.Repeat([]byte{'a'}, 22)
			text[0], text[21], text[at+1] = '"', '"', byte(c)
			if got, want := Valid(text), json.Valid(text); got != want {
				t.Fatalf("Valid(%q) is %v, want %v", text, got, want)
			}
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, text := range texts[:len(texts)-2] {
		f.Add([]byte(text))
	}
	f.Add([]byte("{\"\xbc\":[]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := Valid(text)
		if want := json.Valid(text); got != want {
			t.Fatalf("Valid(%q) is %v, want %v", text, got, want)
		}
		if !got || !utf8.Valid(text) { // encoding/json replaces what is no UTF-8; whoever uses this refuses it
			return
		}
		var members map[string]json.RawMessage
		if text = bytes.TrimSpace(text); text[0] == '{' && json.Unmarshal(text, &members) == nil {
			for name, value := range Members(text) {
				if !json.Valid(value) || members[name] == nil {
					t.Fatalf("member %q of %q is %q", name, text, value)
				}
			}
		}
		var elements []json.RawMessage
		if text[0] == '[' && json.Unmarshal(text, &elements) == nil {
			i := 0
			for value := range Elements(text) {
				if string(value) != string(elements[i]) {
					t.Fatalf("element %d of %q is %q", i, text, value)
				}
				i++
			}
			if i != len(elements) {
				t.Fatalf("%q has %d elements, want %d", text, i, len(elements))
			}
		}
	})
}

func TestMembers(t *testing.T) {
	var got []string
	for name, value := range Members([]byte(` { "a" : 1 , "b\u0020\"c":"x\"}" ,"d":{"e":[1,{}]}, "":null } `)) {
		got = append(got, fmt.Sprintf("%s=%s", name, value))
	}
	if want := `a=1;b "c="x\"}";d={"e":[1,{}]};=null`; strings.Join(got, ";") != want {
		t.Errorf("members are %s, want %s", strings.Join(got, ";"), want)
	}
	for _, text := range []string{`{}`, ` { } `, `[]`, `["a",1]`, `7`, `"{"`, `null`} {
		for name, value := range Members([]byte(text)) {
			t.Errorf("%s has the member %q: %s", text, name, value)
		}
	}
	for range Members([]byte(`{"a":1,"b":2}`)) { // a reader may stop
		break
	}
}

func TestElements(t *testing.T) {
	var got []string
	for value := range Elements([]byte(` [ 1 ,"a,]", [2,3],{"x":[]} ,true] `)) {
		got = append(got, string(value))
	}
	if want := `1;"a,]";[2,3];{"x":[]};true`; strings.Join(got, ";") != want {
		t.Errorf("elements are %s, want %s", strings.Join(got, ";"), want)
	}
	for _, text := range []string{`[]`, ` [ ] `, `{}`, `{"a":1}`, `7`, `"["`} {
		for value := range Elements([]byte(text)) {
			t.Errorf("%s has the element %s", text, value)
		}
	}
	for range Elements([]byte(`[1,2]`)) {
		break
	}
}

func TestText(t *testing.T) {
	for value, want := range map[string]string{`"a"`: "a", `""`: "", `"\u00e9\n\""`: "é\n\"", `7`: "", `null`: "", `{}`: "", ``: "", `"`: ""} {
		if got := Text([]byte(value)); got != want {
			t.Errorf("Text(%s) is %q, want %q", value, got, want)
		}
	}
}

func BenchmarkValid(b *testing.B) {
	text := fmt.Appendf(nil, `{"id":"a","pk":"p","n":[1,2,3],"o":{"x":true,"y":null},"v":%q}`, strings.Repeat("x", 950))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if !Valid(text) {
			b.Fatal("not valid")
		}
	}
}
