package dashboard

import (
	"bytes"
	"embed"
	"net/http"
	"path"
	"time"
)

// files are the page: plain HTML, CSS and modules, as a browser takes them.
//
//go:embed page
var files embed.FS

// types are the media types of the files, by their extensions. Those of the system may be others, and then a browser
// refuses the files.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// servePage serves the files of the page, each by name, and the page itself at /.
func servePage(mux *http.ServeMux) {
	serve := func(w http.ResponseWriter, r *http.Request, name string) {
		text, err := files.ReadFile("page/" + name)
		if err != nil {
			refuse(w, http.StatusNotFound, "the dashboard has no such address")
			return
		}
		w.Header().Set("Content-Type", types[path.Ext(name)])
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { serve(w, r, "page.html") })
	mux.HandleFunc("GET /{file}", func(w http.ResponseWriter, r *http.Request) { serve(w, r, r.PathValue("file")) })
}
