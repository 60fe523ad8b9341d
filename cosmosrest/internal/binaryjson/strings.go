package binaryjson

import (
	"encoding/base64"
	"unicode/utf8"
)

// isString reports whether a marker begins a string.
func isString(marker byte) bool { return marker >= markSystem && marker < markUint64 }

// appendString appends the string of a marker.
func (d *decoder) appendString(marker byte, at int) error {
	text, err := d.takeString(marker, at)
	if err != nil {
		return err
	}
	return d.appendText(text, at)
}

// takeString returns the text of a string, which may not be UTF-8.
func (d *decoder) takeString(marker byte, at int) ([]byte, error) {
	switch {
	case marker < markUser:
		return words[marker-markSystem], nil
	case marker >= markReference1 && marker <= markReference4:
		return d.takeReference(marker, at)
	case marker >= markShortString && marker < markString1:
		return d.take(int(marker-markShortString), "a string")
	case marker >= markString1 && marker <= markString4:
		n, err := d.takeLength(1<<(marker-markString1), "the length of a string")
		if err != nil {
			return nil, err
		}
		return d.take(n, "a string")
	case marker >= markBase64 && marker <= markBase64URL+1:
		return d.takeBase64(marker, at)
	case marker >= markGUIDLower && marker <= markGUIDQuoted:
		return d.takeGUIDText(marker)
	case marker >= markHexLower && marker <= markDateTime:
		return d.takeDigits(marker)
	case marker >= markPacked4 && marker <= markPacked7+1:
		return d.takePacked(marker, at)
	case marker <= lastUser:
		return nil, d.damagedAt(at, "marker %02X is a string of a dictionary that is not in the body: want the string",
			marker)
	}
	return nil, d.damagedAt(at, "marker %02X has no value in JSON", marker)
}

// takeReference returns the text of the string to which a reference points. A reference must not point to another, so
// there are no rings.
func (d *decoder) takeReference(marker byte, at int) ([]byte, error) {
	b, err := d.take(int(marker-markReference1)+1, "a reference")
	if err != nil {
		return nil, err
	}
	to := littleEndian(b)
	if to == 0 || to >= uint64(len(d.body)) {
		return nil, d.damagedAt(at, "the reference is to byte %d: want an offset in the body, which has %d bytes", to,
			len(d.body))
	}
	target := d.body[to]
	if !isString(target) || target >= markReference1 && target <= markReference4 {
		return nil, d.damagedAt(at, "the reference is to byte %d, with the marker %02X: want a string", to, target)
	}
	there := decoder{body: d.body, pos: int(to) + 1, bound: len(d.body), scratch: d.scratch}
	text, err := there.takeString(target, int(to))
	d.scratch = there.scratch
	return text, err
}

// takeBase64 returns the base64 text of the bytes in the body. The length counts groups of four letters. The next byte
// is the number of letters = at the end or, above 2, the complement of the number that is left out.
func (d *decoder) takeBase64(marker byte, at int) ([]byte, error) {
	alphabet, width := base64.StdEncoding, int(marker-markBase64)+1
	if marker >= markBase64URL {
		alphabet, width = base64.URLEncoding, int(marker-markBase64URL)+1
	}
	groups, err := d.takeLength(width, "the length of a base64 text")
	if err != nil {
		return nil, err
	}
	padding, err := d.takeByte("the padding of a base64 text")
	if err != nil {
		return nil, err
	}
	left := padding > 2
	if left {
		padding = ^padding
	}
	if padding > 2 || groups == 0 && padding > 0 {
		return nil, d.damagedAt(at, "a base64 text of %d groups has the padding %d: want 0 to 2", groups, padding)
	}
	raw, err := d.take(groups*3-int(padding), "a base64 text")
	if err != nil {
		return nil, err
	}
	d.scratch = alphabet.AppendEncode(d.scratch[:0], raw)
	if left {
		d.scratch = d.scratch[:len(d.scratch)-int(padding)]
	}
	return d.scratch, nil
}

const (
	lowerDigits = "0123456789abcdef"
	upperDigits = "0123456789ABCDEF"
	timeDigits  = " 0123456789:-.TZ"
)

// takeGUIDText returns the text of a GUID, of which each byte has two digits, the low one first.
func (d *decoder) takeGUIDText(marker byte) ([]byte, error) {
	const size = 16
	raw, err := d.take(size, "a GUID")
	if err != nil {
		return nil, err
	}
	digits := lowerDigits
	if marker == markGUIDUpper {
		digits = upperDigits
	}
	d.scratch = d.scratch[:0]
	for i, b := range raw {
		if i >= 4 && i <= 10 && i%2 == 0 {
			d.scratch = append(d.scratch, '-')
		}
		d.scratch = append(d.scratch, digits[b&0xF], digits[b>>4])
	}
	if marker == markGUIDQuoted {
		d.scratch = append(append([]byte{'"'}, d.scratch...), '"')
	}
	return d.scratch, nil
}

// takeDigits returns a text of hexadecimal digits, or of the characters of dates, with two characters in each byte.
func (d *decoder) takeDigits(marker byte) ([]byte, error) {
	n, err := d.takeLength(1, "the length of a compressed string")
	if err != nil {
		return nil, err
	}
	raw, err := d.take((n+1)/2, "a compressed string")
	if err != nil {
		return nil, err
	}
	digits := [...]string{lowerDigits, upperDigits, timeDigits}[marker-markHexLower]
	d.scratch = d.scratch[:0]
	for _, b := range raw {
		d.scratch = append(d.scratch, digits[b&0xF], digits[b>>4])
	}
	if n%2 == 1 && raw[n/2]>>4 != 0 {
		return nil, d.damagedAt(d.pos-1, "a compressed string of %d characters ends in a byte with two", n)
	}
	d.scratch = d.scratch[:n]
	return d.scratch, nil
}

// takePacked returns a text of characters with 4 to 7 bits. Except for 7 bits, the lowest character is in the body.
func (d *decoder) takePacked(marker byte, at int) ([]byte, error) {
	width, wide := 4+int(marker-markPacked4), 1
	if marker > markPacked7 {
		width, wide = 7, 2
	}
	n, err := d.takeLength(wide, "the length of a compressed string")
	if err != nil {
		return nil, err
	}
	var base byte
	if marker < markPacked7 {
		if base, err = d.takeByte("the first character of a compressed string"); err != nil {
			return nil, err
		}
	}
	raw, err := d.take((n*width+7)/8, "a compressed string")
	if err != nil {
		return nil, err
	}
	d.scratch = d.scratch[:0]
	for bit := 0; bit < n*width; bit += width {
		two := uint(raw[bit/8])
		if bit/8+1 < len(raw) {
			two |= uint(raw[bit/8+1]) << 8
		}
		c := int(base) + int(two>>(bit%8)&(1<<width-1))
		if c >= utf8.RuneSelf {
			return nil, d.damagedAt(at, "a compressed string has the character %d: want less than %d", c, utf8.RuneSelf)
		}
		d.scratch = append(d.scratch, byte(c))
	}
	return d.scratch, nil
}

// appendGUID appends a GUID: its first three groups are little-endian.
func (d *decoder) appendGUID() error {
	raw, err := d.take(16, "a GUID")
	if err != nil {
		return err
	}
	d.out = append(d.out, '"')
	for i, place := range [...]int{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15} {
		if i >= 4 && i <= 10 && i%2 == 0 {
			d.out = append(d.out, '-')
		}
		d.out = append(d.out, lowerDigits[raw[place]>>4], lowerDigits[raw[place]&0xF])
	}
	d.out = append(d.out, '"')
	return nil
}

// appendBinary appends bytes, which JSON has as base64 text.
func (d *decoder) appendBinary(marker byte) error {
	n, err := d.takeLength(1<<(marker-markBinary1), "the length of bytes")
	if err != nil {
		return err
	}
	raw, err := d.take(n, "a value of bytes")
	if err != nil {
		return err
	}
	d.out = append(base64.StdEncoding.AppendEncode(append(d.out, '"'), raw), '"')
	return nil
}
