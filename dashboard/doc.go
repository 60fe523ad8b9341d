// Package dashboard shows deployment units to people and to programs: a page for a browser, health for an orchestrator,
// and the state of the units as JSON. A Dashboard is an [http.Handler]:
//
//	d := dashboard.New(dashboard.Options{Name: "mailer-7f9c", Version: "mailer v1.4"})
//	hide := d.Show(dashboard.Unit{
//		Name: "mailer", Container: "shop/orders", Source: orders, Leases: leases, Processor: p,
//	})
//	defer hide()
//	server := &http.Server{Addr: "127.0.0.1:8090", Handler: d}
//	server.RegisterOnShutdown(d.Close) // else Shutdown waits for those who look
//	go server.ListenAndServe()
//
// A single process shows the whole unit, with the leases and the instances of all processes, because the lease store
// has them. Events come from the process that shows them: give [Dashboard.Events] of the unit to the processor as
// hooks.
//
// # Addresses
//
//	GET /                the page
//	GET /healthz         200 if the process works, 503 with the reasons if not
//	GET /readyz          200 if each unit has its leases or waits for them, 503 if not
//	GET /status          the units as JSON: see Status
//	GET /events          the same as server-sent events, for as long as somebody looks, and what happens
//	GET /explain         a lease in sentences, with its history: ?unit=&container=&lease=
//	GET /letters         dead letters of a unit, the oldest first: ?unit=&container=
//	POST /steer          pauses, resumes, resets and skips leases, and works on dead letters: see Command
//	/store/              Options.Explorer, which only the command of this module has
//	GET /metrics         Options.Metrics
//
// The page needs nothing from elsewhere: no other host, no build step, no cookie. Whatever a document contains is shown
// as text.
//
// # Costs
//
// While nobody looks, a dashboard makes no request. While somebody does, each unit is listed once in Options.Interval,
// however many look: see [admin.Unit.List] for the requests of that. A viewer that does not read is dropped after 10
// seconds, and delays nobody.
//
// # Who may look
//
// The dashboard only reads, unless Options.Write is set. With Options.Key, all but /healthz and /readyz want the key,
// as a bearer token or as the password of basic authentication. Give a key if others can reach the address, and encrypt
// the connection then: the dashboard shows partition keys and documents of dead letters. Without a key the dashboard
// answers only requests whose Host header is localhost or an IP address, so no page of another host can read the
// dashboard by pointing the name of that host here (DNS rebinding). Requests that a browser makes for a page of another
// site are refused in any case, and so are writes with a content type that such a page could send unasked.
package dashboard
