package binaryjson

import (
	"math"
	"strconv"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// widthOf returns the number of bytes of the number of a marker, or 0 if the marker begins no number. The marker of a
// uint64 is not in this table: uniform arrays have none.
func widthOf(marker byte) int {
	switch marker {
	case markNumberUint8, markUint8, markInt8:
		return 1
	case markNumberInt16, markInt16:
		return 2
	case markNumberInt32, markInt32, markUint32, markFloat32:
		return 4
	case markNumberInt64, markInt64, markNumberDouble, markFloat64:
		return 8
	}
	return 0
}

// inArrays reports whether a uniform array can have numbers of a marker.
func inArrays(marker byte) bool {
	return marker >= markUint8 && marker <= markUint32 || marker == markFloat32 || marker == markFloat64
}

// appendNumber appends the number of a marker.
func (d *decoder) appendNumber(marker byte, at int) error {
	if marker == markUint64 {
		raw, err := d.take(8, "a number")
		if err == nil {
			d.out = strconv.AppendUint(d.out, littleEndian(raw), 10)
		}
		return err
	}
	raw, err := d.take(widthOf(marker), "a number")
	if err != nil {
		return err
	}
	bits := littleEndian(raw)
	switch marker {
	case markNumberUint8, markUint8, markUint32, markNumberInt64, markInt64:
		d.out = appendDecimal(d.out, int64(bits))
	case markInt8:
		d.out = appendDecimal(d.out, int64(int8(bits)))
	case markNumberInt16, markInt16:
		d.out = appendDecimal(d.out, int64(int16(bits)))
	case markNumberInt32, markInt32:
		d.out = appendDecimal(d.out, int64(int32(bits)))
	case markFloat32:
		return d.appendFloat(float64(math.Float32frombits(uint32(bits))), at)
	default:
		return d.appendFloat(math.Float64frombits(bits), at)
	}
	return nil
}

func appendDecimal(dst []byte, i int64) []byte { return strconv.AppendInt(dst, i, 10) }

// appendFloat appends a double. Integral doubles keep all digits, so they stay the same number in an integer.
func (d *decoder) appendFloat(f float64, at int) error {
	const beyondInt64, beyondUint64 = 1 << 63, 1 << 64
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return d.damagedAt(at, "the number is %v: want a finite one", f)
	case f != math.Trunc(f):
	case f >= -beyondInt64 && f < beyondInt64:
		d.out = appendDecimal(d.out, int64(f))
		return nil
	case f > 0 && f < beyondUint64:
		d.out = strconv.AppendUint(d.out, uint64(f), 10)
		return nil
	}
	d.out = appendFraction(d.out, f)
	return nil
}

// appendFraction appends any other double as rawjson.AppendNumber does. Most have a few digits behind the point. For
// these the division of an integer of at most 15 digits proves the shortest text: no other text of so few digits is the
// same double.
func appendFraction(dst []byte, f float64) []byte {
	const (
		most     = 4 // digits behind the point
		smallest = 1e-3
		biggest  = 1e11
	)
	if a := math.Abs(f); a >= smallest && a < biggest {
		for point := 1; point <= most; point++ {
			digits := math.Round(a * powers[point])
			if digits/powers[point] != a {
				continue
			}
			if f < 0 {
				dst = append(dst, '-')
			}
			whole := int64(digits) / int64(powers[point])
			dst = append(strconv.AppendInt(dst, whole, 10), '.')
			rest := int64(digits) - whole*int64(powers[point])
			for point--; point >= 0; point-- {
				dst = append(dst, '0'+byte(rest/int64(powers[point])%10))
			}
			return dst
		}
	}
	return rawjson.AppendNumber(dst, f)
}

// appendNumbers appends a uniform array of numbers, or an array of such arrays.
func (d *decoder) appendNumbers(marker byte) error {
	rows := 1
	nested := marker >= markNumberRows1
	wide := 1 + int(marker-markNumbers1)%2
	if nested {
		if inner, err := d.takeByte("the marker of the inner arrays"); err != nil {
			return err
		} else if want := marker - markNumberRows1 + markNumbers1; inner != want {
			return d.damagedAt(d.pos-1, "marker %02X as that of the inner arrays: want %02X", inner, want)
		}
	}
	at := d.pos
	item, err := d.takeByte("the marker of the numbers of an array")
	if err != nil {
		return err
	}
	if !inArrays(item) {
		return d.damagedAt(at, "marker %02X as that of the numbers of an array: want D7 to DC, CD or CE", item)
	}
	count, err := d.takeLength(wide, "the count of an array of numbers")
	if err != nil {
		return err
	}
	if !nested {
		return d.appendRow(item, count)
	}
	if rows, err = d.takeLength(wide, "the count of an array of arrays"); err != nil {
		return err
	}
	d.out = append(d.out, '[')
	for i := range rows {
		if i > 0 {
			d.out = append(d.out, ',')
		}
		if err := d.appendRow(item, count); err != nil {
			return err
		}
	}
	d.out = append(d.out, ']')
	return nil
}

// appendRow appends an array of numbers that have no markers of their own.
func (d *decoder) appendRow(item byte, count int) error {
	if need := count * widthOf(item); need > d.bound-d.pos {
		return d.damagedAt(d.pos, "an array of %d numbers needs %d bytes: %d follow", count, need, d.bound-d.pos)
	}
	d.out = append(d.out, '[')
	for i := range count {
		if i > 0 {
			d.out = append(d.out, ',')
		}
		if err := d.appendNumber(item, d.pos); err != nil {
			return err
		}
	}
	d.out = append(d.out, ']')
	return nil
}
