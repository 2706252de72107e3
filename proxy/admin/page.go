package admin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"k8s.io/apimachinery/pkg/util/duration"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"bytes":   FormatBytes,
		"seconds": FormatSeconds,
		"share":   FormatShare,
		"count":   humanize.Comma,
		"style":   func() template.CSS { return template.CSS(pageCSS) }, // #nosec G203 -- our own
	}).Parse(pageHTML))

	// contentPolicy is the Content-Security-Policy of all answers. It allows nothing but the page's own style sheet.
	contentPolicy = "default-src 'none'; style-src 'sha256-" + digest(pageCSS) + "'; " +
		"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

// digest returns the SHA-256 of text in base64. A Content-Security-Policy names a style sheet in this form.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// writeStatus writes the status as JSON if the request asks for it, otherwise as a page. Every Status can be encoded, so an
// error would mean that the client has gone.
func writeStatus(w http.ResponseWriter, r *http.Request, status Status) {
	w.Header().Set("Vary", "Accept")
	if asksForJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(status)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, status)
}

// asksForJSON reports whether a request has ?format=json, or accepts JSON but not HTML.
func asksForJSON(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	acceptsJSONNotHTML := strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
	return acceptsJSONNotHTML || r.URL.Query().Get("format") == "json"
}

// FormatBytes formats a size in a [Status] for people.
func FormatBytes(n int64) string { return humanize.IBytes(uint64(max(0, n))) } // #nosec G115 -- not negative

// FormatSeconds formats a duration in a [Status] for people.
func FormatSeconds(s float64) string {
	return duration.HumanDuration(time.Duration(s * float64(time.Second)))
}

// FormatShare formats a share in a [Status] for people; nil means that there were no requests. A share just below 1 is written
// as "> 99.9 %", so that only 1 is written as 100 %.
func FormatShare(share *float64) string {
	switch {
	case share == nil:
		return "none yet"
	case *share < 1 && *share > 0.999:
		return "> 99.9 %"
	}
	return fmt.Sprintf("%.1f %%", 100*(*share))
}
