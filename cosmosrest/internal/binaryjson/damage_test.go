package binaryjson

import (
	"errors"
	"strings"
	"testing"
)

// Each damage is named, with its byte.
func TestDamage(t *testing.T) {
	for body, want := range map[string]string{
		"":                                    "at byte 0: want the byte 80",
		"7B":                                  "at byte 0: want the byte 80",
		"80":                                  "at byte 1: want a value",
		"80 CF 00 00":                         "at byte 1: marker CF has no value in JSON",
		"80 40":                               "at byte 1: marker 40 is a string of a dictionary",
		"80 CB 01 02":                         "at byte 2: a number needs 8 bytes: 2 follow",
		"80 C1 02":                            "at byte 2: the length of a string needs 2 bytes: 1 follow",
		"80 83 61 62":                         "at byte 2: a string needs 3 bytes: 2 follow",
		"80 82 C3 28":                         "at byte 1: a string of 2 bytes is not UTF-8",
		"80 D0 D0":                            "at byte 2: want the end of the body, which has 1 bytes after its value",
		"80 E2 05 00":                         "at byte 1: the container has the length 5: want at most the 1 bytes that follow",
		"80 E5 02 03 00 01":                   "at byte 1: the count of the container exceeds its items by 1",
		"80 E5 02 01 00 01":                   "at byte 5: want the end of the container from byte 1",
		"80 E2 01 C8 01":                      "at byte 4: a number needs 1 bytes: 0 follow",
		"80 E2 02 E2 01 00":                   "at byte 3: the container has the length 1: want at most the 0 bytes that follow",
		"80 E9 01 02":                         "at byte 2: marker 01 as the name of a member: want a string",
		"80 EA 02 81 61":                      "at byte 5: want a value",
		"80 E2 03 81 61":                      "at byte 1: the container has the length 3: want at most the 2 bytes",
		"80 CC 00 00 00 00 00 00 F8 7F":       "at byte 1: the number is NaN: want a finite one",
		"80 F0 CD 01 00 00 80 7F":             "at byte 4: the number is +Inf: want a finite one",
		"80 F0 CC 01 00 00 00 00 00 00 00 00": "at byte 2: marker CC as that of the numbers of an array",
		"80 F0 DA FF 00":                      "at byte 4: an array of 255 numbers needs 1020 bytes: 1 follow",
		"80 F2 F1 DA 00 00":                   "at byte 2: marker F1 as that of the inner arrays: want F0",
		"80 C3 00":                            "at byte 1: the reference is to byte 0: want an offset in the body",
		"80 C3 03":                            "at byte 1: the reference is to byte 3: want an offset in the body, which has 3 bytes",
		"80 C3 09":                            "at byte 1: the reference is to byte 9: want an offset in the body, which has 3 bytes",
		"80 E2 04 C3 05 C3 03":                "at byte 3: the reference is to byte 5, with the marker C3: want a string",
		"80 E2 03 07 C3 03":                   "at byte 4: the reference is to byte 3, with the marker 07: want a string",
		"80 71 01 03 66":                      "at byte 1: a base64 text of 1 groups has the padding 252: want 0 to 2",
		"80 71 00 FE":                         "at byte 1: a base64 text of 0 groups has the padding 1",
		"80 78 01 1F":                         "at byte 3: a compressed string of 1 characters ends in a byte with two",
		"80 7B 01 7F 0F":                      "at byte 1: a compressed string has the character 142: want less than 128",
		"80 75 00":                            "at byte 2: a GUID needs 16 bytes: 1 follow",
		"80 DF FF FF FF FF 00":                "at byte 6: a value of bytes needs 4294967295 bytes: 1 follow",
	} {
		if _, err := AppendText(nil, parseHex(t, body), limit); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v: want %s…", body, err, want)
		}
	}
}

// A body that is cut anywhere is damaged at a byte of the rest, or just behind the rest.
func TestCutBodies(t *testing.T) {
	for _, v := range vectors(t) {
		whole := parseHex(t, v.Binary)
		for n := range len(whole) {
			_, err := AppendText(nil, whole[:n], limit)
			if damaged, ok := errors.AsType[*Error](err); !ok || damaged.At > n {
				t.Errorf("%s, its first %d bytes: %v", v.Name, n, err)
			}
		}
	}
}

// Nothing small becomes large: references repeat a text as often as the limit allows.
func TestLimit(t *testing.T) {
	body := []byte{preamble, markArray4, 0, 0, 0, 0, markString2, 0, 0x10}
	body = append(body, strings.Repeat("x", 0x1000)...)
	for range 0x1000 {
		body = append(body, markReference1, 6)
	}
	body = append(body, markFloat16) // is not reached
	size := len(body) - 6
	body[2], body[3] = byte(size), byte(size>>8)
	if _, err := AppendText(nil, body, limit); !errors.Is(err, ErrTooLong) {
		t.Errorf("%v: want ErrTooLong", err)
	}
	if _, err := AppendText(nil, parseHex(t, "80 84 61 61 61 61"), 5); !errors.Is(err, ErrTooLong) {
		t.Errorf("a text of 6 bytes with the limit 5: %v", err)
	}
	deep := append([]byte{preamble}, strings.Repeat("\xe1", maxLevels+1)...)
	_, err := AppendText(nil, append(deep, 0), limit)
	if err == nil || !strings.Contains(err.Error(), "in each other") {
		t.Errorf("%d arrays in each other: %v", maxLevels+1, err)
	}
	if _, err := AppendText(nil, append(deep[:maxLevels+1], 0), limit); err != nil {
		t.Errorf("%d arrays in each other: %v", maxLevels, err)
	}
}
