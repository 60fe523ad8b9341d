package cosmosrest

import (
	"encoding/json"
	"strconv"
)

// offer is the throughput that a database or container was given.
type offer struct {
	version
	ID        string
	RU        int             // a second; the most, when it scales by itself
	Autoscale json.RawMessage `json:",omitempty"` // the settings as the client sent them
}

const (
	headerThroughput = "X-Ms-Offer-Throughput"
	headerAutoscale  = "X-Ms-Cosmos-Offer-Autopilot-Settings"

	minManual, stepManual       = 400, 100   // request units a second
	minAutoscale, stepAutoscale = 1000, 1000 // also of the most
	maxThroughput               = 1_000_000
	rangeThroughput             = 10_000 // of one physical partition at most
)

// offered is the offer that the headers of a request to create something make; nil for
// none.
func (c *call) offered() (*offer, error) {
	manual, auto := c.header(headerThroughput), c.header(headerAutoscale)
	o := &offer{version: newVersion()}
	switch {
	case manual == "" && auto == "":
		return nil, nil
	case manual != "" && auto != "":
		return nil, badRequest("both x-ms-offer-throughput and x-ms-cosmos-offer-autopilot-settings are there: want one of them")
	case manual != "":
		n, err := strconv.Atoi(manual)
		if err != nil {
			return nil, badRequest("x-ms-offer-throughput is %q: want a number", manual)
		}
		o.RU = n
		return o, o.check()
	}
	o.Autoscale = json.RawMessage(auto)
	return o, o.check()
}

// check refuses what the service refuses, and finds the most that autoscale allows.
func (o *offer) check() error {
	name, least, step := "offer throughput", minManual, stepManual
	if o.Autoscale != nil {
		var settings struct {
			Max int `json:"maxThroughput"`
		}
		if err := json.Unmarshal(o.Autoscale, &settings); err != nil {
			return badRequest(`autopilot settings are %s: want JSON such as {"maxThroughput":4000}`, o.Autoscale)
		}
		o.RU, name, least, step = settings.Max, "maximum autoscale throughput", minAutoscale, stepAutoscale
	}
	if o.RU < least || o.RU > maxThroughput || o.RU%step != 0 {
		return badRequest("%s is %d: want %d to %d in steps of %d", name, o.RU, least, maxThroughput, step)
	}
	return nil
}

// ranges is how many physical partitions a container begins with.
func (o *offer) ranges() int {
	if o == nil {
		return 1
	}
	return (o.RU + rangeThroughput - 1) / rangeThroughput
}
