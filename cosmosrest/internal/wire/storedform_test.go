package wire

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestNumbersAndTextsAreStoredAsInTheService(t *testing.T) {
	for body, want := range map[string]string{ // the first ones are recorded
		`{"a":9007199254740993,"b":18446744073709551615,"c":-9223372036854775808}`: "",
		`18446744073709551616`: `1.8446744073709552e+019`, `123456789012345678901234567890`: `1.2345678901234568e+029`,
		`0.1000000000000000055511151231257827`: `0.1`, `1.0`: `1`, `-0.0`: `0`, `-0`: `0`, `1e-400`: `0`,
		`1.7976931348623157e308`: `1.7976931348623157e+308`, `5e-324`: `4.94065645841247e-324`,
		`12345678901234567890.123`: `1.2345678901234567e+019`, `"a\ud800b"`: "\"a\uFFFDb\"", `"a\u0000b"`: "",
		// and these are not
		`[1,-1,0,1.5,-0.25,0.001,"1.0",true]`: "", `1e2`: `100`, `[1.50,2E1]`: `[1.5,20]`, `0.00001`: `1e-005`,
		`1e20`: `1e+020`, `0.3333333333333333`: `0.33333333333333331`, `"\\ud800"`: "", `"\ud83d\ude00 \\"`: "",
		`"\ude00\ud83d"`: "\"\uFFFD\uFFFD\"", `"\ud83d\ud83d\ude00"`: "\"\uFFFD\\ud83d\\ude00\"", `"\"1.0\""`: "",
		`{"1.0":1.0}`: `{"1.0":1}`, `123456789012345678`: "", `1234567890123456789`: "",
		"{\"a\tb\": \"c\r\n\",\n\t\"d\":1}": "{\"a\\tb\": \"c\\r\\n\",\n\t\"d\":1}",
		// no JSON stays what it is, so that the parser can say what is wrong
		``: "", `"`: "", `"\`: "", `-`: "", `1.`: "", `01`: "", `-.5`: "", `1.e5`: "", `-01.50`: "",
		`"\u12`: "", `1e`: "", `.5`: "",
	} {
		got, err := StoredForm([]byte(body))
		if want == "" {
			want = body
		}
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v: want %s", body, got, err, want)
		}
	}
	for _, body := range []string{`1e400`, `{"a":[-1e309]}`} {
		if _, err := StoredForm([]byte(body)); err == nil || !strings.HasPrefix(err.Error(),
			"The request payload is invalid.") {
			t.Errorf("%s: %v, want a refusal", body, err)
		}
	}
}

func TestRawBreaksInTextsGetEscapes(t *testing.T) {
	for body, want := range map[string]string{
		"{\n\t\"a\tb\": \"c\r\n\",\n\"d\":1.0}": "{\n\t\"a\\tb\": \"c\\r\\n\",\n\"d\":1.0}",
		"[\"\\\"\n\",\n\"\\\\\", \"\\\\\t\"]":   "[\"\\\"\\n\",\n\"\\\\\", \"\\\\\\t\"]",
		`{"a":"\t","b":1.0}`:                    `{"a":"\t","b":1.0}`, "": "", "\"\n": `"\n`,
		"\"\\\n\"": "\"\\\n\"", // no JSON stays what it is
	} {
		if got := string(EscapeBreaks([]byte(body))); got != want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
}

func FuzzStoredForm(f *testing.F) {
	f.Add([]byte(`{"a":[1.0,-0,1e5,"\ud800","\\"],"b":12345678901234567890.1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := StoredForm(body)
		if err != nil || !json.Valid(body) {
			return
		}
		again, err := StoredForm(got)
		if err != nil || string(again) != string(got) {
			t.Errorf("%s became %s, and then %s, %v", body, got, again, err)
		}
		var was, is any
		if json.Unmarshal(body, &was) != nil || json.Unmarshal(got, &is) != nil {
			t.Fatalf("%s became %s", body, got)
		}
		before, _ := json.Marshal(withoutSign(was))
		after, _ := json.Marshal(withoutSign(is))
		if string(before) != string(after) {
			t.Errorf("%s became %s: %s is not %s", body, got, after, before)
		}
	})
}

// withoutSign replaces -0 by 0, and half of a surrogate pair is U+FFFD for encoding/json already.
func withoutSign(v any) any {
	switch v := v.(type) {
	case float64:
		if v == 0 {
			return math.Abs(v)
		}
	case []any:
		for i := range v {
			v[i] = withoutSign(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = withoutSign(v[k])
		}
	}
	return v
}

func BenchmarkStoredForm(b *testing.B) {
	body := []byte(`{"id":"i1","pk":"p12","n":12345,"price":12.5,"text":"` + strings.Repeat("x", 900) + `"}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := StoredForm(body); err != nil {
			b.Fatal(err)
		}
	}
}
