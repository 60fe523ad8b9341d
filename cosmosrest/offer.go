package cosmosrest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Offers are the throughput of databases and containers, as separate resources. An offer is stored in the metadata of
// its owner, so the offer is created and deleted together with its owner.

// offer is the throughput of a database or container.
type offer struct {
	version
	ID        string          // also its resource id
	RU        int             // request units a second; the maximum, with autoscale
	Autoscale json.RawMessage `json:",omitempty"` // the settings as the client sent them
	Implied   bool            `json:",omitempty"` // no client asked for this offer, so it does not throttle
	Highest   int             `json:",omitempty"` // highest RU so far; 0 in offers of older versions
	Replaced  int64           `json:",omitempty"` // Unix seconds of the last replace
	Growing   bool            `json:",omitempty"` // partitions are still to be split (growth.go)
}

// The service's limits, in request units a second.
const (
	minManual, stepManual       = 400, 100   // request units a second
	minAutoscale, stepAutoscale = 1000, 1000 // the same, for the maximum
	maxThroughput               = 1_000_000
	rangeThroughput             = 10_000 // at most, of a physical partition
	autoscaleFloor              = 10     // autoscale goes down to the maximum divided by this
	manualFloor                 = 100    // the minimum is at least the highest throughput so far divided by this
)

// offered returns the offer that the headers of a create request contain, or nil.
func offered(c *call) (*offer, error) {
	manual, auto := c.in.Header(wire.HeaderThroughput), c.in.Header(wire.HeaderAutoscale)
	var content offerContent
	switch {
	case manual == "" && auto == "":
		return nil, nil
	case manual != "" && auto != "":
		return nil,
			wire.BadRequest("both x-ms-offer-throughput and x-ms-cosmos-offer-autopilot-settings are there: want " +
				"one of them")
	case manual != "":
		n, err := strconv.Atoi(manual)
		if err != nil {
			return nil, wire.BadRequest("x-ms-offer-throughput is %.100q: want a number", manual)
		}
		content.Manual = &n
	default:
		content.Autoscale = json.RawMessage(auto)
	}
	o := &offer{ID: c.s.newOfferID()}
	return o, o.changeContent(content)
}

// impliedOffer returns the offer of a container that was created without an offer and whose database has none. As in
// the service, such a container has an offer that clients can read and replace.
func impliedOffer(c *call) *offer {
	return &offer{version: newVersion(), ID: c.s.newOfferID(), RU: c.s.impliedThroughput(), Implied: true}
}

// impliedThroughput returns what such an offer shows: the budget of containers without an offer, if an offer can have
// this throughput, and otherwise the service's minimum.
func (s *Server) impliedThroughput() int {
	if ru := s.o.Throughput; ru >= minManual && ru <= maxThroughput && ru%stepManual == 0 {
		return ru
	}
	return minManual
}

// newOfferID returns four letters and digits. Clients read them as the base64 of three bytes.
func (s *Server) newOfferID() string {
	for {
		id := rand.Text()[:4]
		if !slices.ContainsFunc(s.offers(), func(o owned) bool { return o.ID == id }) {
			return id
		}
	}
}

// offerContent is the part of an offer that can be changed.
type offerContent struct {
	Manual    *int            `json:"offerThroughput,omitempty"`
	Autoscale json.RawMessage `json:"offerAutopilotSettings,omitempty"`
}

// changeContent replaces the content of the offer, unless the service would refuse the change.
func (o *offer) changeContent(to offerContent) error {
	name, least, step := "offerThroughput", minManual, stepManual
	var ru int
	switch {
	case to.Autoscale != nil:
		var settings struct {
			Max int `json:"maxThroughput"`
		}
		if err := json.Unmarshal(to.Autoscale, &settings); err != nil {
			return wire.BadRequest(`autopilot settings are %.100q: want JSON such as {"maxThroughput":4000}`,
				to.Autoscale)
		}
		ru, name, least, step = settings.Max, "maxThroughput", minAutoscale, stepAutoscale
	case to.Manual != nil:
		ru = *to.Manual
	default:
		return wire.BadRequest("the offer has no content: want offerThroughput or offerAutopilotSettings in it")
	}
	least = max(least, o.leastAfter(step))
	if ru < least || ru > maxThroughput || ru%step != 0 {
		e := wire.BadRequest("%s is %d: want %d to %d in steps of %d", name, ru, least, maxThroughput, step)
		if ru < least {
			return e.Led(fmt.Sprintf("Requested throughput %d is less than required minimum throughput %d.", ru, least))
		}
		return e
	}
	o.version, o.RU, o.Autoscale, o.Implied = newVersion(), ru, to.Autoscale, false
	o.Highest = max(o.Highest, ru)
	return nil
}

// leastAfter returns the minimum that follows from the highest throughput so far, in steps of the kind of throughput.
func (o *offer) leastAfter(step int) int {
	floor := manualFloor
	if step == stepAutoscale {
		floor = autoscaleFloor
	}
	return (o.Highest/floor + step - 1) / step * step
}

// ranges returns the number of physical partitions of a new container. Programs rely on this number: test suites of
// SDKs request 11,000 RU/s to get two.
func (o *offer) ranges() int {
	if o == nil {
		return 1
	}
	return (o.RU + rangeThroughput - 1) / rangeThroughput
}

// leastThroughput returns the lowest throughput to which the offer can be changed.
func (o *offer) leastThroughput() int {
	if o.Autoscale != nil {
		return max(minAutoscale, o.leastAfter(stepAutoscale))
	}
	return max(minManual, o.leastAfter(stepManual))
}

// owned is an offer with its owner: a container or a database.
type owned struct {
	*offer
	rid, self           string
	database, container string // names within the store; database or container is empty
}

// offers returns all offers, by id.
func (s *Server) offers() []owned {
	var all []owned
	for _, d := range s.db.Databases() {
		if o := readMeta(d.Meta).Offer; o != nil {
			all = append(all, owned{offer: o, rid: d.RID, self: "dbs/" + d.RID + "/", database: d.ID})
		}
	}
	for _, cont := range s.db.Containers() {
		if o := readMeta(cont.Spec().Meta).Offer; o != nil {
			if o.Implied { // the server may have been started with another budget since
				o.RU = s.impliedThroughput()
			}
			all = append(all, owned{offer: o, rid: cont.RID(), self: cont.Self(), container: cont.Name()})
		}
	}
	slices.SortFunc(all, func(a, b owned) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// updateOffer changes an offer in the metadata of its owner. If change fails, nothing is changed.
func (s *Server) updateOffer(ctx context.Context, o owned, change func(*offer) error) error {
	renew := func(raw json.RawMessage) (json.RawMessage, error) {
		m := readMeta(raw)
		if m.Offer == nil || m.Offer.ID != o.ID {
			return nil, noOffer(o.ID)
		}
		err := change(m.Offer)
		return wire.Encode(m), err
	}
	if o.container == "" {
		_, err := s.db.UpdateDatabase(ctx, o.database, renew)
		return err
	}
	_, err := s.db.UpdateContainer(ctx, o.container, func(spec *docstore.ContainerSpec) (err error) {
		spec.Meta, err = renew(spec.Meta)
		return err
	})
	return err
}

// offeredIn returns the throughput of the offer in the metadata of a database or container; 0 if no client asked for
// an offer.
func offeredIn(raw json.RawMessage) int {
	if o := readMeta(raw).Offer; o != nil && !o.Implied {
		return o.RU
	}
	return 0
}

// noOffer returns the 404 of an offer.
func noOffer(id string) *wire.Error {
	return wire.NotFound(0, wire.NoResource+": there is no offer %q", id)
}

// listOffers lists the offers of the account.
func listOffers(c *call) error { return eachOffer(c, resources.listPage) }

// queryOffers queries the offers of the account.
func queryOffers(c *call) error {
	if !c.in.IsQuery() {
		f := wire.Errorf(http.StatusMethodNotAllowed, 0, wire.CodeNotAllowed,
			"offers cannot be created by themselves: want a query, or the header x-ms-offer-throughput where a "+
				"database or container is created")
		f.Allow = "GET, POST"
		return f
	}
	return eachOffer(c, resources.queryPage)
}

// eachOffer calls answer with all offers.
func eachOffer(c *call, answer func(resources, *call) error) error {
	if err := c.allowAction(auth.ReadManaged); err != nil {
		return err
	}
	all := resources{member: "Offers"}
	for _, o := range c.s.offers() {
		all.all = append(all.all, resource{o.ID, o.json()})
	}
	return answer(all, c)
}

// readOffer answers with an offer.
func readOffer(c *call) error {
	if err := c.allowAction(auth.ReadManaged); err != nil {
		return err
	}
	o, err := c.s.offer(c.in.Target.ID)
	if err != nil {
		return err
	}
	return replyOffer(c, o)
}

// offer finds an offer by its id.
func (s *Server) offer(id string) (owned, error) {
	for _, o := range s.offers() {
		if o.ID == id {
			return o, nil
		}
	}
	return owned{}, noOffer(id)
}

// replaceOffer changes a throughput. The new budget is in force at once. If the throughput needs more partitions,
// partitions are split after the answer.
func replaceOffer(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	o, err := c.s.offer(c.in.Target.ID)
	if err != nil {
		return err
	}
	p, err := readProperties(&c.in)
	if err != nil {
		return err
	}
	var owner string
	if err := p.decodeMember("offerResourceId", "the resource id of the offer's owner", &owner); err != nil {
		return err
	}
	if owner != "" && owner != o.rid {
		return wire.BadRequest("offerResourceId is %q: want %q, an offer stays with its owner", owner, o.rid)
	}
	var content offerContent
	if err := p.decodeMember("content", `an object such as {"offerThroughput":400}`, &content); err != nil {
		return err
	}
	// The change is checked within the store's update, so no other update can come in between.
	err = c.s.updateOffer(c.ctx, o, func(now *offer) error {
		if err := c.in.RefuseOther(now.ETag); err != nil {
			return err
		}
		if err := now.mayMigrate(c, content); err != nil {
			return err
		}
		o.offer = now
		if err := now.changeContent(content); err != nil {
			return err
		}
		now.Replaced = now.Changed
		now.Growing = needsSplits(c.ctx, c.s, o)
		return nil
	})
	if err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	return replyOffer(c, o)
}

// mayMigrate refuses a change between manual throughput and autoscale, unless the header for this change is set,
// because the two are billed differently.
func (o *offer) mayMigrate(c *call, to offerContent) error {
	header := wire.HeaderToManual
	if to.Autoscale != nil {
		header = wire.HeaderToAutoscale
	}
	if (o.Autoscale == nil) == (to.Autoscale == nil) || c.s.o.Lenient || c.in.Flag(header) {
		return nil
	}
	return wire.BadRequest("the offer would change between manual throughput and autoscale: want the header %s: true",
		strings.ToLower(header))
}

// replyOffer answers with an offer. While partitions must still be split, the change is pending, and the request goes
// on with the splits after the answer.
func replyOffer(c *call, o owned) error {
	c.out.Set(wire.AnswerOfferPending, strconv.FormatBool(o.Growing))
	c.out.Set(wire.AnswerMinThroughput, strconv.Itoa(o.leastThroughput()))
	if err := c.replyResource(http.StatusOK, o.version, o.json()); err != nil {
		return err
	}
	if o.Growing {
		splitAfterAnswer(c, o)
	}
	return nil
}

// shownContent is the content of an offer as clients see it.
type shownContent struct {
	offerContent
	PerMinute bool                 `json:"offerIsRUPerMinuteThroughputEnabled"`
	Least     throughputParameters `json:"offerMinimumThroughputParameters"`
	Replaced  int64                `json:"offerLastReplaceTimestamp,omitempty"`
	Pending   bool                 `json:"isOfferReplacePending,omitempty"`
}

// throughputParameters are the reasons for the lowest throughput of an offer.
type throughputParameters struct {
	Highest int `json:"maxThroughputEverProvisioned"`
	Storage int `json:"maxConsumedStorageEverInKB"` // always 0: storage does not raise the minimum here
}

// json returns the offer as clients see it. An autoscale offer contains the lowest throughput of its scale.
func (o owned) json() []byte {
	now := o.RU
	if o.Autoscale != nil {
		now /= autoscaleFloor
	}
	content := shownContent{
		offerContent: offerContent{&now, o.Autoscale}, Pending: o.Growing, Replaced: o.Replaced,
		Least: throughputParameters{Highest: max(o.Highest, o.RU)},
	}
	p := properties{
		"offerVersion": wire.Encode("V2"), "offerType": wire.Encode("Invalid"), "content": wire.Encode(content),
		"resource": wire.Encode(o.self), "offerResourceId": wire.Encode(o.rid),
	}
	p.setIdentity(o.ID, o.ID, "offers/"+o.ID+"/", o.version)
	return wire.Encode(p)
}
