package snapshot

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// list is a list of the upstream, taken apart.
type list struct {
	apiVersion, kind string
	meta             ListMeta
	items            [][]byte
	itemsNull        bool
}

// ListMeta is what a list says about itself.
type ListMeta struct {
	Revision uint64
	// Continue is the token for the next page, "" on the last one.
	Continue string
	// Remaining is written if HasRemaining.
	Remaining    int64
	HasRemaining bool
}

// parseList takes a list apart. Members it does not know are an error: a frame that was learned
// from such a list could not be right.
func parseList(body []byte) (list, error) {
	var l list
	if !json.Valid(body) {
		return l, fmt.Errorf("%w: the list is not valid JSON", errShape)
	}
	err := fields(body, func(key string, value []byte) (err error) {
		switch key {
		case "apiVersion":
			l.apiVersion, err = unquote(value)
		case "kind":
			l.kind, err = unquote(value)
		case "metadata":
			l.meta, err = parseListMeta(value)
		case "items":
			if string(value) == "null" {
				l.itemsNull = true
				return nil
			}
			return elements(value, func(item []byte) error {
				l.items = append(l.items, item)
				return nil
			})
		default:
			err = fmt.Errorf("%w: a list with a member %q", errShape, key)
		}
		return err
	})
	return l, err
}

func parseListMeta(metadata []byte) (ListMeta, error) {
	var m ListMeta
	err := fields(metadata, func(key string, value []byte) (err error) {
		switch key {
		case "resourceVersion":
			m.Revision, err = parseRevision(value)
		case "continue":
			m.Continue, err = unquote(value)
		case "remainingItemCount":
			m.HasRemaining = true
			m.Remaining, err = strconv.ParseInt(string(value), 10, 64)
		default:
			err = fmt.Errorf("%w: list metadata with a member %q", errShape, key)
		}
		return err
	})
	return m, err
}
