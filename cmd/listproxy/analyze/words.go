package analyze

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// count writes a number for people, or a dash for none.
func count(n int64) string {
	if n == 0 {
		return "-"
	}
	return humanize.Comma(n)
}

// share writes a part of a whole as a percentage, and never as all or nothing if it is not.
func share(n, all int64) string {
	if all == 0 {
		return "-"
	}
	switch percent := 100 * float64(n) / float64(all); {
	case n > 0 && percent < 0.5:
		return "< 1%"
	case n < all && percent > 99.5:
		return "> 99%"
	default:
		return fmt.Sprintf("%.0f%%", percent)
	}
}

// seconds writes a time for people.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d == 0:
		return "-"
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// size writes how many bytes there were, if that is known.
func (c Counts) size() string {
	switch {
	case c.Sized == 0:
		return "?"
	case c.Sized < c.requests():
		return "≥ " + humanize.IBytes(uint64(c.Bytes)) // #nosec G115 -- a sum of sizes
	}
	return humanize.IBytes(uint64(c.Bytes)) // #nosec G115 -- a sum of sizes
}

// name is a client for people.
func name(userAgent, user string) string {
	if user == "" {
		return userAgent
	}
	return userAgent + " " + shortUser(user)
}

// shortUser is a user without what all service accounts have in common.
func shortUser(user string) string {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		return strings.Replace(account, ":", "/", 1)
	}
	return user
}

// say says what a form is, and why it is forwarded if it is.
func (f Form) say() string {
	text := humanize.Comma(f.Count) + " " + f.Form
	if f.Reason != "" {
		text += " (" + string(f.Reason) + ")"
	}
	return text
}

// forms says what a row asked for.
func (r Row) forms() string {
	words := make([]string, len(r.Forms))
	for i, form := range r.Forms {
		words[i] = form.say()
	}
	return strings.Join(words, ", ")
}

// read says what was read.
func (r Report) read() string {
	var lines, bad, tooLong int64
	for _, f := range r.Files {
		lines, bad, tooLong = lines+f.Lines, bad+f.Bad, tooLong+f.TooLong
	}
	text := fmt.Sprintf("%s lines: %s lists and %s watches", humanize.Comma(lines),
		humanize.Comma(r.Totals.Lists.Count), humanize.Comma(r.Totals.Watches.Count))
	if r.From != nil {
		const form = "2006-01-02 15:04:05"
		text += fmt.Sprintf(", from %s to %s UTC (%v)", r.From.Format(form), r.To.Format(form),
			cmp.Or(r.To.Sub(*r.From).Round(time.Second), time.Second))
	}
	if bad > 0 {
		text += fmt.Sprintf(". Lines that could not be read: %s", humanize.Comma(bad))
	}
	if tooLong > 0 {
		text += fmt.Sprintf(". Lines longer than %s, which were left out: %s", humanize.IBytes(maxLine), humanize.Comma(tooLong))
	}
	return text + "."
}

// about says how many requests an advice is about.
func (a Advice) about(all Counts) string {
	var words []string
	if a.Lists > 0 {
		words = append(words, fmt.Sprintf("%s lists (%s)", humanize.Comma(a.Lists), share(a.Lists, all.Lists.Count)))
	}
	if a.Watches > 0 {
		words = append(words, fmt.Sprintf("%s watches (%s)", humanize.Comma(a.Watches), share(a.Watches, all.Watches.Count)))
	}
	return strings.Join(words, ", ")
}

// most names those that sent the most.
func (a Advice) most() string {
	words := make([]string, len(a.Most))
	for i, s := range a.Most {
		words[i] = fmt.Sprintf("%s: %s %s", name(s.UserAgent, s.User), humanize.Comma(s.Count), s.Resource)
	}
	return strings.Join(words, "; ")
}
