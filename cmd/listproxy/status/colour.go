package status

import (
	"io"
	"os"
	"regexp"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
)

// The colours of a terminal (ECMA-48).
const (
	green  = "\x1b[32m"
	red    = "\x1b[1;31m"
	bold   = "\x1b[1m"
	normal = "\x1b[0m"
)

// colours are what stands out in a status, as statusz writes it. What a running listproxy says has
// no control characters by then.
var colours = []struct {
	text   *regexp.Regexp
	colour string
}{
	{regexp.MustCompile(`(?m)^[A-Z][A-Z ]+$`), bold},                          // titles of sections
	{regexp.MustCompile(`NOT HEALTHY|(?m:^  WARNING)|, with a warning`), red}, // on the first line and below it
	{regexp.MustCompile(`(?m)\bhealthy$`), green},
}

// inColour is a status in colour.
func inColour(text string) string {
	for _, c := range colours {
		text = c.text.ReplaceAllString(text, c.colour+"$0"+normal)
	}
	return text
}

// wantsColour says whether what is written is shown in colour: on a terminal, unless the user does
// not want that (https://no-color.org).
func wantsColour(w io.Writer) bool { return cli.IsTerminal(w) && os.Getenv("NO_COLOR") == "" }
