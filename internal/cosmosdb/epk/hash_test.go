package epk

import (
	"strings"
	"testing"
)

// service holds places that were computed by the service's own SDKs: the test
// suites of the Azure SDKs for Java (PartitionKeyInternalTest,
// PartitionKeyHashingTests), .NET, Python and JavaScript, and azcosmos for
// MultiHash. An empty column was not recorded.
var service = []struct{ key, v1, v2 string }{
	{`[{}]`, "05C1D529E345DC00", "11622DAA78F835834610ABE56EFF5CB5"},
	{`[null]`, "05C1ED45D7475601", "378867E4430E67857ACE5C908374FE16"},
	{`[true]`, "05C1D7C5A903D803", "0E711127C5B5A8E4726AC6DD306A3E59"},
	{`[false]`, "05C1DB857D857C02", "2FE1BE91E90A3439635E0E9E37361EF2"},
	{`[0]`, "05C1BF6DA11560058000", "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"},
	{`[5]`, "05C1D9C1C5517C05C014", "19C08621B135968252FB34B4CF66F811"},
	{`[5.0]`, "05C1D9C1C5517C05C014", "19C08621B135968252FB34B4CF66F811"},
	{`[5.5]`, "05C1D7A771716C05C016", "0E2EE47829D1AF775EEFB6540FD1D0ED"},
	{`[-1]`, "05C1D1A5BDDF9C054010", "19938E7A936C1C5B9E3AE842BBC16839"},
	{`[3.14159]`, "05C1EB8365FFBC05C009917F3F01DD19DC", "01F6E65F21D72B6E2E3F1D159DDCD3F5"},
	{`[5.12312419050912359123]`, "", "0EF2E2D82460884AF0F6440BE4F726A8"},
	{`[12313.1221]`, "05C1ED154D592E05C0C90723F50FC925D8", "27E7ECA8F2EE3E53424DE8D5220631C6"},
	{`[123456789]`, "05C1D9E1A5311C05C19DB7CD8B40", "1F56D2538088EBA82CCF988F36E16760"},
	{`[-128]`, "05C1D73349F54C053FA0", "01DAEDABF913540367FE219B2AD06148"},
	{`[127]`, "05C1DD539DDFCC05C05FE0", "0C507ACAC853ECA7977BF4CEFB562A25"},
	{`[-2147483648]`, "05C1DFBF252BCC053E20", "0B1660D5233C3171725B30D4A5F4CC1F"},
	{`[2147483647]`, "05C1E1F503DFB205C1DFFFFFFFFC", "2D9349D64712AEB5EB1406E2F0BE2725"},
	{`[-9223372036854775808]`, "05C1DB35F33D1C053C20", "23D5C6395512BDFEAFADAD15328AD2BB"},
	{`[9223372036854775807]`, "05C1B799AB2DD005C3E0", "2EDB959178DFCCA18983F89384D1629B"},
	{`[5e-324]`, "05C1E5C91F4D3005800101010101010102", "0E6CBA63A280927DE485DEF865800139"},
	{`[1.7976931348623157e308]`, "05C1CBE367C53005FFEFFFFFFFFFFFFFFE", "31424D996457102634591FF245DBCC4D"},
	{`[""]`, "05C1CF33970FF80800", "32E9366E637A71B4E710384B2F4970A0"},
	{`["a"]`, "05C1D78593652C086200", "3A5381E1114EB8D3FCC90795045B49B7"},
	{`["aa"]`, "05C1C7B7270FE008626200", "05033626483AE80D00E44FBD35362B19"},
	{`["p1"]`, "05C1CFEDCF076008713200", "062B23DEC15212F01B9A85F4E93A940C"},
	{`["redmond"]`, "05C1EFE313830C087366656E706F6500", "22E342F38A486A088463DFF7838A5963"},
	{`["partitionKey"]`, "05C1E1B3D9CD2608716273756A756A706F4C667A00", "013AEFCF77FA271571CF665A58C933F1"},
	{`["t1"]`, "", "3D48BB14DA9D090D22112C96695028B6"},
	{`["t10"]`, "", "26F9715D00B5EF6DAC84EE93DA7FE88B"},
	{`["ünïcode"]`, "", "2F659D3306868DADA79E432F48A53236"},
	{`[12]`, "", "19FD5D8D0EE06FCB7FA8BDD69193DFC3"},
	{`[1.5]`, "", "35C5DDEB6C795D16A9963C73C54E97BC"},
	{`[-3]`, "", "30478B3D0E0AD5DBC95C665464636106"},
	{`["customer42"]`, "", "19819C94CE42A1654CCC8110539D9589"},
	{`["tenant-1"]`, "05C1EF779995400875666F626F752E3200", "1B6E36CBA1839DF91310617831CA7FAC"},
	{`["WithUnicode鱀"]`, "05C1E7677793CA08586A7569566F6A64706566EAB28100", "19F3EACF1AD95D15CEB5CBC7B8A2DBDA"},
	{
		`["` + strings.Repeat("a", 101) + `"]`, "05C1EB5921F70608" + strings.Repeat("62", 100) + "00",
		"08042541D30C8BF90D7092B1519AE0BC",
	},
	{
		`["` + strings.Repeat("a", 1024) + `"]`, "05C1EB5921F70608" + strings.Repeat("62", 100) + "00",
		"332BDF5512AE49615F32C7D98C2DB86C",
	},

	// Several components under kind Hash: one hash over all of them.
	{`[5.0, "redmond", true, null]`, "", "3032DECBE2AB1768D8E0AEDEA35881DF"},
	{`[2, true, false, null, {}, "Привет!"]`, "05C1D19581B37C05C0000302010008D1A0D281D1B9D1B3D1B6D2832200", ""},
	{
		`["по-русски", null, true, false, {}, 5.5]`, "05C1D39FA55F0408D1C0D1BF2ED281D284D282D282D1BBD1B9000103020005C016",
		"",
	},
}

func TestHashMatchesTheServiceVectors(t *testing.T) {
	for _, v := range service {
		if v.v1 != "" {
			checkPlace(t, HashV1, v.key, v.v1)
		}
		if v.v2 != "" {
			checkPlace(t, HashV2, v.key, v.v2)
		}
	}
}

func TestMultiHashMatchesTheServiceVectors(t *testing.T) {
	const tenant1, one = "0DAE0B8467B011E957BC0B8B0DEB5ACA", "3C80B1B7310BB39F29CC4EA05BDD461E"
	for key, want := range map[string]string{
		`["tenant1"]`:             tenant1,
		`["tenant1", "user1"]`:    tenant1 + "236A5BE3329A7AD57D4B998E8602BD7B",
		`["tenant1", "user1", 7]`: tenant1 + "236A5BE3329A7AD57D4B998E8602BD7B" + "36ECBAF0D9CC21F10F0938014BB52739",
		`["t1", {}]`:              "3D48BB14DA9D090D22112C96695028B611622DAA78F835834610ABE56EFF5CB5",
		`["t1", "u1", "s1"]`:      "3D48BB14DA9D090D22112C96695028B62A947C94F6E254B945CEBC3196C9897C2924A879AFFF52A411F93F1A83532751",
		`["1", "alpha"]`:          one + "14F3157FF51E396B3DEDB97CA8071424",
		`["1", null, true]`:       one + "378867E4430E67857ACE5C908374FE16" + "0E711127C5B5A8E4726AC6DD306A3E59",
		`[false, null]`:           "2FE1BE91E90A3439635E0E9E37361EF2378867E4430E67857ACE5C908374FE16",
		`[1234, {}]`:              "266B73B33A7065810B7D2A2938F85E8011622DAA78F835834610ABE56EFF5CB5",
		`["title_player_account!9E711EFBD3BBB499"]`:                "378CCD42FC556DDDE688B05DC178BB92",
		`["title_player_account!9E711EFBD3BBB492", "Title-B60C1"]`: "2306FDF78C35ED4FD1C5835B075FC0B0248E1F58635558D12708326234F93A21",
	} {
		checkPlace(t, MultiHash, key, want)
	}
}

// The vectors of the SDK for Java around the two limits of V1, 100 characters and
// 100 bytes; they also end in every remainder that the 128-bit hash treats apart.
func TestHashMatchesTheServiceForLongStrings(t *testing.T) {
	latin := strings.Repeat("abcdefghijklmnopqrstuvwxyz", 5)
	for i, want := range []string{
		"072D8FA3228DD2A6C0A7129C845700E6", "023D5F0B62EBEF22A43564F267193B4D", "357D83181DB32D35F58CDA3C9F2E0742",
		"12B320F72959AB449FD8E090C6B23B88", "25FD21A31C69A8C8AD994F7FAC2B2B9F", "1DC6FB1CF6E1228C506AA6C8735023C4",
		"308E1E7870956CE5D9BDAD01200E09BD", "362E21ABDEA7179DBDF7BF549DD8303B", "1EBE932ECEFA4F53CE339D31B6BF53FD",
		"3BFA3A6E9CBABA0EF756AEDEC66B1B3C", "2880BF78DE0CE2CD1B0120EDA22601C4", "1F3577D1D9CA7FC56100AED11F4DC646",
		"205A9EB61F3B063E61C6ED655C9220E6", "1152A43F1A852AFDDD4518C9CDD48616", "38E2EB2EF54012B5CA40CDA34F1C7736",
		"19BCC416843B9085DBBC18E8C7C80D72", "03F1BB89FD8E9747B047281E80FA2E84", "2BA0757B833F3922A3CBBB6DDA3803B4",
	} {
		length := 99 + i
		key := `["` + latin[:length] + `"]`
		checkPlace(t, HashV2, key, want)
		hash := "05C1DD5D81496408"
		if length == 99 {
			hash = "05C19B2DC38FC008"
		}
		checkPlace(t, HashV1, key, hash+plusOne(latin[:min(length, 100)])+"00")
	}

	cyrillic := []rune(strings.Repeat("абвгдеёжзийклмнопрстуфхцчшщъыьэюя", 4))
	for _, v := range []struct {
		length       int
		v1, end1, v2 string
	}{
		{49, "05C1C1BD37FE", "00", "3742C1AF65AFA809282539F4BCDF2F6F"},
		{50, "05C1B339EF4720", "00", "399CF1F141E066E09CC7557EA7F0977A"},
		{51, "05C1EB1F29DBFA", "", "2D63C2F5FDAC6EFE5660CD509A723A90"},
		{99, "05C1E72F79C716", "", "1E9836D9BCB67FDB2B5C984BD40AFAF9"},
		{100, "05C1E3653D9F3E", "", "16102F19448867537E51BB4377962AF9"},
		{101, "05C1E3653D9F3E", "", "0B6D25D07748AB9CA0F523D4BAD146C8"},
	} {
		s := string(cyrillic[:v.length])
		checkPlace(t, HashV1, `["`+s+`"]`, v.v1+"08"+plusOne(s[:min(len(s), 101)])+v.end1)
		checkPlace(t, HashV2, `["`+s+`"]`, v.v2)
	}
}

// plusOne is the sorted form of a string without its end, the simple way.
func plusOne(s string) string {
	b := []byte(s)
	for i := range b {
		b[i]++
	}
	return upperHex(b)
}

func checkPlace(t *testing.T, kind Kind, key, want string) {
	t.Helper()
	if got := place(t, kind, key); got != want {
		t.Errorf("Hash(%d, %.64s) = %s, want %s", kind, key, got, want)
	}
}

func place(t testing.TB, kind Kind, key string) string {
	t.Helper()
	c, err := Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Hash(kind, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheEmptyKeyIsTheStartOfTheKeySpace(t *testing.T) {
	for _, kind := range kinds {
		checkPlace(t, kind, `[]`, Min)
	}
}

func TestHashRefusesWhatTheKindCannotHave(t *testing.T) {
	for _, v := range []struct {
		kind Kind
		c    Components
		want string
	}{
		{MultiHash, make(Components, 4), "hash partition key: it has 4 components; want at most 3"},
		{0, Components{Null()}, "hash partition key: unknown kind; want HashV1, HashV2 or MultiHash"},
	} {
		if _, err := Hash(v.kind, v.c); err == nil || err.Error() != v.want {
			t.Errorf("Hash(%d) = %v, want %s", v.kind, err, v.want)
		}
	}
}

func TestAPrefixHoldsEveryKeyBelowItAndNoOther(t *testing.T) {
	lo, hi, err := Prefix(Components{String("tenant1")})
	if err != nil {
		t.Fatal(err)
	}
	if want := "0DAE0B8467B011E957BC0B8B0DEB5ACA"; lo != want || hi != want+"FF" {
		t.Fatalf("Prefix = %s, %s", lo, hi)
	}
	for i := range 1000 {
		in, _ := Hash(MultiHash, Components{String("tenant1"), Number(float64(i)), Null()})
		if in < lo || in >= hi {
			t.Fatalf("key %d of the tenant is outside: %s", i, in)
		}
		out, _ := Hash(MultiHash, Components{Number(float64(i)), String("tenant1")})
		if out >= lo && out < hi {
			t.Fatalf("key %d of another tenant is inside: %s", i, out)
		}
	}
}

func TestThePrefixOfNoComponentsIsTheKeySpace(t *testing.T) {
	if lo, hi, err := Prefix(nil); lo != Min || hi != Max || err != nil {
		t.Fatalf("Prefix = %q, %q, %v", lo, hi, err)
	}
	if _, _, err := Prefix(make(Components, 4)); err == nil {
		t.Fatal("a prefix of 4 levels was accepted")
	}
}

// Between the halves of a surrogate pair .NET leaves U+FFFD; see cut.
func TestV1CutsAPairOfSurrogatesLikeDotNET(t *testing.T) {
	x := strings.Repeat("x", 99)
	for in, want := range map[string]string{
		x + "😀":            x + "\uFFFD",
		x + "😀 and more":   x + "\uFFFD",
		x[1:] + "😀":        x[1:] + "😀",
		x[1:] + "😀 more":   x[1:] + "😀",
		x + "é and more":   x + "é",
		x + "y":            x + "y",
		"é" + x:            "é" + x,
		"short, no change": "short, no change",
	} {
		if got := String(in).cut(); got != String(want) {
			t.Errorf("cut %q = %q, want %q", in, got.str, want)
		}
	}
}

func TestAllocationsOfHashStayFew(t *testing.T) {
	c := Components{String("London"), Number(5), Null()}
	for _, kind := range kinds {
		if n := testing.AllocsPerRun(100, func() { Hash(kind, c) }); n > 1 {
			t.Errorf("Hash(%d) allocates %v times, want 1 for its result", kind, n)
		}
	}
}

var kinds = []Kind{HashV1, HashV2, MultiHash}

func BenchmarkHash(b *testing.B) {
	for name, kind := range map[string]Kind{"V1": HashV1, "V2": HashV2, "MultiHash": MultiHash} {
		c := Components{String("tenant-1"), String("user-12345"), Number(7)}
		if kind != MultiHash {
			c = c[:1]
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Hash(kind, c)
			}
		})
	}
}
