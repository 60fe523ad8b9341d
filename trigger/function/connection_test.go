package function

import (
	"fmt"
	"strings"
	"testing"
)

func TestAConnectionIsFoundWhereAzureLooks(t *testing.T) {
	account := func(host string) string {
		return "AccountEndpoint=https://" + host + ".documents.azure.com:443/;AccountKey=c2VjcmV0;"
	}
	order := []string{
		"ConnectionStrings__AzureWebJobsShop=" + account("one"), "AzureWebJobsShop=" + account("two"),
		"CUSTOMCONNSTR_Shop=" + account("three"), "shop=" + account("four"),
	}
	for i, want := range []string{"one", "two", "three", "four"} {
		app, err := readPlain(t, `,"connection":"Shop"`, order[i:]...)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		c := app.Functions[0].Trigger.Connection
		if !strings.Contains(c.Endpoint, "//"+want+".") || c.Key != "c2VjcmV0" {
			t.Errorf("got %v, want that of %s", c, want)
		}
	}
	local := `{"ConnectionStrings":{"Shop":{"ConnectionString":"` + account("five") + `"},"Other":"` + account("six") + `"}}`
	for name, want := range map[string]string{"Shop": "five", "Other": "six"} {
		app, err := readFiles(t, map[string]string{
			"local.settings.json": local, "Seen/function.json": function(plainTrigger + `,"connection":"` + name + `"`),
		})
		if err != nil || !strings.Contains(app.Functions[0].Trigger.Connection.Endpoint, "//"+want+".") {
			t.Errorf("%s: got %+v, %v", name, app, err)
		}
	}
}

func TestAnIdentityIsReadOrRefused(t *testing.T) {
	const endpoint = "Shop__accountEndpoint=https://acct.documents.azure.com"
	for settings, want := range map[string]Identity{
		"":                                      {},
		"tenantId=t":                            {TenantID: "t"},
		"credential=managedidentity":            {Kind: IdentityManaged},
		"credential=ManagedIdentity clientId=c": {Kind: IdentityManaged, ClientID: "c"},
		"credential=managedidentity managedIdentityResourceId=r": {Kind: IdentityManaged, ResourceID: "r"},
		"credential=managedidentity managedIdentityObjectId=o":   {Kind: IdentityManaged, ObjectID: "o"},
		"credential=workloadidentity tenantId=t clientId=c tokenFilePath=/f": {
			Kind: IdentityWorkload, TenantID: "t", ClientID: "c", TokenFile: "/f",
		},
		"tenantId=t clientId=c clientSecret=s": {Kind: IdentitySecret, TenantID: "t", ClientID: "c", Secret: "s"},
	} {
		app, err := readPlain(t, `,"connection":"Shop"`, identity(endpoint, settings)...)
		if err != nil {
			t.Errorf("%s: %v", settings, err)
			continue
		}
		c := app.Functions[0].Trigger.Connection
		if c.Identity != want || c.Endpoint != "https://acct.documents.azure.com" || c.Key != "" ||
			c.Setting != "Shop" {
			t.Errorf("%s: got %#v", settings, c)
		}
	}
	const at = "Seen/function.json: bindings[0].connection is Shop: "
	for settings, want := range map[string]string{
		"clientId=c":             "Shop__clientId is set alone: want credential managedidentity or workloadidentity",
		"clientSecret=sesame":    "Shop__clientSecret is set: want tenantId and clientId beside it",
		"credential=certificate": "Shop__credential is certificate: want managedidentity or workloadidentity, or none",
		"credential=managedidentity clientId=c managedIdentityObjectId=o": "Shop__clientId, managedIdentityResourceId and managedIdentityObjectId: want one of them",
		"certificate=my":       "the setting Shop__certificate is not known here: want one of accountEndpoint,",
		"accountEndpoint=acct": "Shop__accountEndpoint is acct: want a URL such as https://HOST:443/",
		"accountEndpoint=AccountEndpoint=https://h/;AccountKey=sesame": "Shop__accountEndpoint is a text that may have a secret",
		"accountEndpoint=": "want a setting Shop__accountEndpoint, or a connection string",
	} {
		app, err := readPlain(t, `,"connection":"Shop"`, identity(endpoint, settings)...)
		if err == nil || !strings.HasPrefix(err.Error(), at+want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: got %v, %v, want %s", settings, app, err, want)
		}
	}
}

// identity returns the settings of a connection, written NAME=VALUE NAME=VALUE.
func identity(endpoint, settings string) []string {
	all := []string{endpoint}
	for setting := range strings.FieldsSeq(settings) {
		all = append(all, "Shop__"+setting)
	}
	return all
}

func TestAConnectionStringIsNeverShown(t *testing.T) {
	const at = "Seen/function.json: bindings[0].connection is Shop: the "
	for text, want := range map[string]string{
		"AccountKey=c2VjcmV0": "setting has no AccountEndpoint or no AccountKey: want AccountEndpoint=https://HOST:PORT/;AccountKey=KEY;",
		"c2VjcmV0":            "setting has no AccountEndpoint or no AccountKey",
		"AccountEndpoint=https://h;AccountKey=s!c2VjcmV0": "AccountKey of the setting is not base64: want the key as the portal shows it",
		"AccountEndpoint=h;AccountKey=c2VjcmV0":           "AccountEndpoint of the setting is h: want a URL such as https://HOST:443/",
		"AccountEndpoint=https://h:p;AccountKey=c2VjcmV0": "AccountEndpoint of the setting is https://h:p: want a URL such as https://HOST:443/",
	} {
		app, err := readPlain(t, `,"connection":"Shop"`, "Shop="+text)
		if err == nil || !strings.HasPrefix(err.Error(), at+want) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%s: got %v, %v, want %s", text, app, err, want)
		}
	}
	key := strings.Repeat("c2VjcmV0", 10) + "c2VjcmU=" // as long as that of an account
	for _, inPlaceOfAName := range []string{key, strings.TrimRight(key, "="), "%" + key + "%"} {
		app, err := readPlain(t, `,"connection":"`+inPlaceOfAName+`"`)
		if err == nil || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("a key as the name of a setting: got %v, %v", app, err)
		}
	}
	app, err := readPlain(t, "", "AzureWebJobsCosmosDB="+plainAccount+"DisableServerCertificateValidation=True;")
	if err != nil || len(app.Notices) != 1 || !strings.Contains(app.Notices[0], "DisableServerCertificateValidation") {
		t.Fatalf("got %+v, %v", app, err)
	}
	c := app.Functions[0].Trigger.Connection
	c.Identity.Secret = "sesame"
	if text := fmt.Sprintf("%v %+v %s %+v", c, c, c, app.Functions[0]); strings.Contains(text, "c2VjcmV0") ||
		strings.Contains(text, "sesame") {
		t.Errorf("the key is in %s", text)
	}
}

func TestLocalSettingsAreThoseOfADevelopersMachine(t *testing.T) {
	for text, want := range map[string]string{
		`{"IsEncrypted":true}`:       "local.settings.json: IsEncrypted is true: want the values in plain text",
		`{"Values":{"A":{"b":"c"}}}`: `local.settings.json: Values.A is another kind of value: want a text`,
		`{"Values":["sesame"]}`:      `local.settings.json: Values is another kind of value: want an object`,
		`{"Values":`:                 "local.settings.json: line 1: it is no JSON",
	} {
		_, err := readFiles(t, map[string]string{
			"local.settings.json": text, "Seen/function.json": function(plainTrigger),
		})
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
