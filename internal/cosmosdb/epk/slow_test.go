package epk

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// The same places computed a second time, slowly and by other means: numbers as texts of
// bits, strings as UTF-16, MurmurHash3 as it is published.

// slowHash is what [Hash] has to give.
func slowHash(kind Kind, c Components) string {
	switch {
	case len(c) == 0:
		return Min
	case kind == MultiHash:
		var place strings.Builder
		for _, one := range c {
			place.WriteString(slowV2(Components{one}))
		}
		return place.String()
	case kind == HashV2:
		return slowV2(c)
	}
	hashed, shown := "", ""
	for _, one := range c {
		if one.mark == markString {
			units := utf16.Encode([]rune(one.str))
			one.str = string(utf16.Decode(units[:min(len(units), 100)]))
		}
		hashed += slowBytes(one, "\x00")
		shown += slowSorted(one)
	}
	return fmt.Sprintf("%X", slowSorted(Number(float64(murmur32(hashed))))+shown)
}

func slowV2(c Components) string {
	var hashed strings.Builder
	for _, one := range c {
		hashed.WriteString(slowBytes(one, "\xFF"))
	}
	low, high := murmur128(hashed.String())
	n := new(big.Int).Lsh(new(big.Int).SetUint64(high), 64)
	n.Add(n, new(big.Int).SetUint64(low))
	n.Mod(n, new(big.Int).Lsh(big.NewInt(1), 126))
	return fmt.Sprintf("%032X", n)
}

// slowBytes is what is hashed of a component.
func slowBytes(c Component, end string) string {
	switch c.mark {
	case markNumber:
		var text strings.Builder
		text.WriteString("\x05")
		for n, i := math.Float64bits(c.num), 0; i < 8; i++ {
			text.WriteString(string([]byte{byte(n % 256)}))
			n /= 256
		}
		return text.String()
	case markString:
		return "\x08" + c.str + end
	}
	return string([]byte{c.mark})
}

// slowSorted is a component as it sorts.
func slowSorted(c Component) string {
	switch c.mark {
	case markNumber:
		return "\x05" + slowNumber(c.num)
	case markString:
		var text strings.Builder
		text.WriteString("\x08")
		for i, b := range []byte(c.str) {
			if i > 100 {
				break
			}
			text.WriteByte(min(b, 0xFE) + 1)
		}
		if len(c.str) <= 100 {
			text.WriteString("\x00")
		}
		return text.String()
	}
	return string([]byte{c.mark})
}

// slowNumber is eight bits, then groups of seven with a bit behind each that says whether
// one more follows.
func slowNumber(f float64) string {
	n := new(big.Int).SetUint64(math.Float64bits(math.Abs(f)))
	half := new(big.Int).Lsh(big.NewInt(1), 63)
	if f < 0 {
		n.Sub(half, n)
	} else {
		n.Add(half, n)
	}
	text := fmt.Sprintf("%064b", n)
	rest := strings.TrimRight(text[8:], "0")
	rest += strings.Repeat("0", (7-len(rest)%7)%7)
	if rest == "" {
		rest = "0000000"
	}
	encoded := text[:8]
	for ; len(rest) > 7; rest = rest[7:] {
		encoded += rest[:7] + "1"
	}
	encoded += rest + "0"
	var bytes []byte
	for ; encoded != ""; encoded = encoded[8:] {
		var b byte
		fmt.Sscanf(encoded[:8], "%b", &b)
		bytes = append(bytes, b)
	}
	return string(bytes)
}

// little is up to eight bytes as a number, the first one last.
func little(b string) (n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		n = n*256 + uint64(b[i])
	}
	return n
}

// murmur32 is MurmurHash3_x86_32 with seed 0.
func murmur32(text string) uint32 {
	h, all := uint32(0), len(text)
	mix := func(k uint32) uint32 { return bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593 }
	for ; len(text) >= 4; text = text[4:] {
		h = bits.RotateLeft32(h^mix(uint32(little(text[:4]))), 13)*5 + 0xe6546b64
	}
	h ^= mix(uint32(little(text))) ^ uint32(all)
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// murmur128 is MurmurHash3_x64_128 with seed 0.
func murmur128(text string) (h1, h2 uint64) {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	mix1 := func(k uint64) uint64 { return bits.RotateLeft64(k*c1, 31) * c2 }
	mix2 := func(k uint64) uint64 { return bits.RotateLeft64(k*c2, 33) * c1 }
	last := func(k uint64) uint64 {
		k = (k ^ k>>33) * 0xff51afd7ed558ccd
		k = (k ^ k>>33) * 0xc4ceb9fe1a85ec53
		return k ^ k>>33
	}
	all := uint64(len(text))
	for ; len(text) >= 16; text = text[16:] {
		h1 = (bits.RotateLeft64(h1^mix1(little(text[:8])), 27)+h2)*5 + 0x52dce729
		h2 = (bits.RotateLeft64(h2^mix2(little(text[8:16])), 31)+h1)*5 + 0x38495ab5
	}
	tail := min(len(text), 8)
	h1, h2 = h1^mix1(little(text[:tail]))^all, h2^mix2(little(text[tail:]))^all
	h1 += h2
	h2 += h1
	h1, h2 = last(h1), last(h2)
	h1 += h2
	return h1, h2 + h1
}

func checkSlow(t interface{ Fatalf(string, ...any) }, kind Kind, c Components) {
	got, err := Hash(kind, c)
	if err != nil {
		return // refused; that is tested elsewhere
	}
	if want := slowHash(kind, c); got != want {
		t.Fatalf("Hash(%d, %v)\n%s\nslowly\n%s", kind, c, got, want)
	}
}

func TestHashIsWhatItIsSlowly(t *testing.T) {
	component := rapid.OneOf(
		rapid.SampledFrom(Components{
			{},
			Null(), Bool(false), Bool(true), Number(math.Copysign(0, -1)),
			Number(math.Inf(1)), Number(math.Inf(-1)),
		}),
		rapid.Map(rapid.Float64(), Number),
		rapid.Map(rapid.Map(rapid.Int64(), func(n int64) float64 { return float64(n) }), Number),
		rapid.Map(rapid.String(), String),
		rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune("aéж鱀😀\u0000\U0010FFFF")), 90, 110, -1), String),
		rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 300, -1), String),
	)
	key := rapid.SliceOfN(component, 1, MaxLevels)
	rapid.Check(t, func(t *rapid.T) {
		checkSlow(t, rapid.SampledFrom(kinds).Draw(t, "kind"), key.Draw(t, "key"))
	})
}

// The numbers of a baseline test of the .NET SDK: what version 1 hashes to, and the
// places of version 2. A negative zero is a key of its own.
func TestNumbersHashAsInDotNet(t *testing.T) {
	const safe = 1<<53 - 1
	for _, v := range []struct {
		number float64
		hash   uint32
		v2     string
	}{
		{0, 0x1EDA80A6, "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"},
		{math.Copysign(0, -1), 0xB03DA650, "3D018BB1DF3DB27235766E81FD10406E"},
		{1, 0xE1655A93, "20CD98B339BA78A5D0CF6953B87070B0"},
		{-1, 0x452BDBE7, "19938E7A936C1C5B9E3AE842BBC16839"},
		{math.SmallestNonzeroFloat64, 0xAC83D318, "0E6CBA63A280927DE485DEF865800139"},
		{math.MaxFloat64, 0x378B3C46, "31424D996457102634591FF245DBCC4D"},
		{-math.MaxFloat64, 0xE38DD8A1, "27050CC4910CFD9DACE1283D3801DF25"},
		{math.Inf(-1), 0x0F5A6CC5, "1B63B3FB266DB3B6CD3BC79FE893CDE8"},
		{math.Inf(1), 0xD2F84F93, "3889F7F08A8CE2A5C9829BBB1944B4FF"},
		{math.MaxInt64, 0x1732A96D, "2EDB959178DFCCA18983F89384D1629B"},
		{math.MaxInt64 - 1, 0x1732A96D, "2EDB959178DFCCA18983F89384D1629B"},
		{math.MinInt64, 0x69AF2787, "23D5C6395512BDFEAFADAD15328AD2BB"},
		{safe, 0x13F69B8A, "12C221C7032CED1F9E6693CE1428E6CF"},
		{safe - 1, 0xE5744366, "0FEA3467D94AA6E4628EF0B248C1FD9B"},
		{safe + 1, 0xA30CCE12, "15335910D01122E3D99DA5DE569B065D"},
	} {
		key := Components{Number(v.number)}
		if got, _ := Hash(HashV2, key); got != v.v2 {
			t.Errorf("version 2 of %v: %s, want %s", v.number, got, v.v2)
		}
		want := fmt.Sprintf("05%X", slowNumber(float64(v.hash)))
		if got, _ := Hash(HashV1, key); !strings.HasPrefix(got, want) {
			t.Errorf("version 1 of %v: %s, want it to begin with %s", v.number, got, want)
		}
	}
}
