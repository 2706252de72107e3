package telemetry

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"

	"github.com/munnerz/goautoneg"
)

//go:embed statusz.html
var statusHTML string

// StatusHandler answers with what read returns: as a page for people, or as JSON with
// ?format=json or for an Accept header that prefers it. The page loads nothing from elsewhere, and
// its Content-Security-Policy says so. It must not be reachable where clients are. read must be safe
// for concurrent use.
func StatusHandler(read func() Status, log *slog.Logger) (http.Handler, error) {
	page, err := template.New("statusz").Funcs(template.FuncMap{
		"bytes": formatBytes, "count": formatCount[int64], "seconds": formatSeconds, "share": formatShare,
		"bound": formatBound, "lag": formatLag, "lists": formatLists, "bar": layBar, "percent": percentOf,
		"objects": formatCount[int], "barLabel": barLabel, "gaps": gapsOf, "history": formatHistory,
	}).Parse(statusHTML)
	if err != nil {
		return nil, fmt.Errorf("the status page: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Vary", "Accept")
		var body bytes.Buffer
		status := read()
		status.Sort()
		if wantsJSON(r) {
			h.Set("Content-Type", "application/json")
			encoder := json.NewEncoder(&body)
			encoder.SetIndent("", "  ")
			err = encoder.Encode(status)
		} else {
			nonce := rand.Text()
			h.Set("Content-Type", "text/html; charset=utf-8")
			h.Set("Content-Security-Policy", contentSecurityPolicy(nonce))
			h.Set("Referrer-Policy", "no-referrer")
			err = page.Execute(&body, struct {
				Status
				Nonce string
			}{status, nonce})
		}
		if err != nil {
			log.Error("the status page cannot be made", "error", err)
			http.Error(w, "the status page cannot be made: the log says why", http.StatusInternalServerError)
			return
		}
		// An error means that the client has gone.
		_, _ = w.Write(body.Bytes())
	}), nil
}

// contentSecurityPolicy lets the page have its own style and script, and ask for itself again.
func contentSecurityPolicy(nonce string) string {
	return "default-src 'none'; style-src 'nonce-" + nonce + "'; script-src 'nonce-" + nonce +
		"'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// wantsJSON says in which form r asks for the status.
func wantsJSON(r *http.Request) bool {
	switch r.URL.Query().Get("format") {
	case "json":
		return true
	case "html":
		return false
	}
	return goautoneg.Negotiate(strings.Join(r.Header.Values("Accept"), ","), []string{"text/html", "application/json"}) == "application/json"
}

// percentOf is part of all, from 0 to 100.
func percentOf(part, all int64) int64 {
	if all <= 0 {
		return 0
	}
	return min(100, part*100/all)
}

// gapsOf is how many gaps a history has.
func gapsOf(c CollectionStatus) int { return max(0, len(c.Spans)-1) }

// barLabel says in words what a history's bar shows.
func barLabel(c CollectionStatus) string {
	if len(c.Spans) == 0 {
		return "nothing is known"
	}
	text := fmt.Sprintf("revisions %d to %d, %s", c.Spans[0].From, c.Revision, formatHistory(c))
	switch n := gapsOf(c); n {
	case 0:
		return text + ", no gaps"
	case 1:
		return text + ", 1 gap"
	default:
		return fmt.Sprintf("%s, %d gaps", text, n)
	}
}
