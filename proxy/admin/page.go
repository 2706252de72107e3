package admin

import (
	"bytes"
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
		"bytes": Bytes, "seconds": Seconds, "share": Share, "count": humanize.Comma,
		"style": func() template.CSS { return template.CSS(pageCSS) }, // #nosec G203 -- our own
	}).Parse(pageHTML))

	// contentPolicy is the Content-Security-Policy of all answers. It allows nothing but the page's own style sheet.
	contentPolicy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
		digest(pageCSS))
)

// digest returns the SHA-256 of text in base64, as a Content-Security-Policy has it.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// writeStatus writes the status as JSON if the request asks for JSON, otherwise as a page.
func writeStatus(w http.ResponseWriter, r *http.Request, status Status) {
	var body bytes.Buffer // all of the answer, so that an error can still become a 500
	var err error
	contentType := "text/html; charset=utf-8"
	if asksForJSON(r) {
		contentType = "application/json"
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(status)
	} else {
		err = page.Execute(&body, status)
	}
	if err != nil {
		writeText(w, http.StatusInternalServerError, "the status cannot be written: "+err.Error())
		return
	}
	w.Header().Set("Vary", "Accept")
	w.Header().Set("Content-Type", contentType)
	// An error means that the client has gone.
	_, _ = w.Write(body.Bytes())
}

// asksForJSON reports whether a request has ?format=json, or accepts JSON but not HTML.
func asksForJSON(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	acceptsOnlyJSON := strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
	return acceptsOnlyJSON || r.URL.Query().Get("format") == "json"
}

// Bytes formats a size of a [Status] for people.
func Bytes(n int64) string { return humanize.IBytes(uint64(max(0, n))) } // #nosec G115 -- not negative

// Seconds formats a duration of a [Status] for people.
func Seconds(s float64) string {
	return duration.HumanDuration(time.Duration(s * float64(time.Second)))
}

// Share formats a share of a [Status] for people; nil means that there were no requests. Only 1 is written as 100 %.
func Share(share *float64) string {
	switch {
	case share == nil:
		return "none yet"
	case *share < 1 && *share > 0.999:
		return "> 99.9 %"
	}
	return fmt.Sprintf("%.1f %%", 100*(*share))
}
