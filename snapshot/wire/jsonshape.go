package wire

import (
	"bytes"
	"fmt"
	"strconv"
)

// The API server has two ways to write a list in JSON. Built-in types keep the order of their Go structs, and
// their items carry no kind and apiVersion: structShape. Custom resources have all keys sorted, always a
// "continue", and items that keep both: sortedShape.
type (
	structShape struct{ jsonItems }
	sortedShape struct{ jsonItems }
)

// jsonItems writes the items of a list, which are the same in both ways.
type jsonItems struct{}

func (jsonItems) separator() string { return "," }

func (jsonItems) appendItemHead(dst []byte, _ int) []byte { return dst }

// shapes implements Encoding.
func (jsonEncoding) shapes() []shape { return []shape{structShape{}, sortedShape{}} }

func (structShape) appendHead(dst []byte, f *Envelope, meta ListMeta, n, _ int) []byte {
	dst = append(dst, `{"kind":`...)
	dst = strconv.AppendQuote(dst, f.kind)
	dst = append(dst, `,"apiVersion":`...)
	dst = strconv.AppendQuote(dst, f.APIVersion)
	dst = append(dst, `,"metadata":{"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, meta.Revision, 10)
	dst = append(dst, '"')
	if meta.Continue != "" {
		dst = append(dst, `,"continue":`...)
		dst = strconv.AppendQuote(dst, meta.Continue)
	}
	if meta.HasRemaining {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, meta.Remaining, 10)
	}
	if meta.Shards != "" {
		dst = append(dst, `,"shardInfo":{"selector":`...)
		dst = strconv.AppendQuote(dst, meta.Shards)
		dst = append(dst, '}')
	}
	return appendItemsHead(append(dst, '}'), f, n)
}

func (structShape) appendTail(dst []byte, _ *Envelope, _ ListMeta, n int) []byte {
	if n > 0 {
		dst = append(dst, ']')
	}
	return append(dst, "}\n"...)
}

func (sortedShape) appendHead(dst []byte, f *Envelope, _ ListMeta, n, _ int) []byte {
	dst = append(dst, `{"apiVersion":`...)
	dst = strconv.AppendQuote(dst, f.APIVersion)
	return appendItemsHead(dst, f, n)
}

func (sortedShape) appendTail(dst []byte, f *Envelope, meta ListMeta, n int) []byte {
	if n > 0 {
		dst = append(dst, ']')
	}
	dst = append(dst, `,"kind":`...)
	dst = strconv.AppendQuote(dst, f.kind)
	dst = append(dst, `,"metadata":{"continue":`...)
	dst = strconv.AppendQuote(dst, meta.Continue)
	if meta.HasRemaining {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, meta.Remaining, 10)
	}
	dst = append(dst, `,"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, meta.Revision, 10)
	return append(dst, "\"}}\n"...)
}

// appendItemsHead appends the bytes from the end of the metadata to the first of n items.
func appendItemsHead(dst []byte, f *Envelope, n int) []byte {
	dst = append(dst, `,"items":`...)
	if n == 0 {
		return append(dst, f.EmptyItems...)
	}
	return append(dst, '[')
}

// Event framing in JSON: {"type":"ADDED","object":{…}} and a line break.
const (
	jsonEventType   = `{"type":"`
	jsonEventObject = `","object":`
	jsonEventEnd    = "}\n"
)

// appendEventHead implements Encoding.
func (jsonEncoding) appendEventHead(dst []byte, kind string, form ItemForm, _ int) (out []byte, skip int) {
	dst = append(append(append(dst, jsonEventType...), kind...), jsonEventObject...)
	if form.lead != "" {
		return append(append(dst, '{'), form.lead...), 1
	}
	return dst, 0
}

// eventEnd implements Encoding.
func (jsonEncoding) eventEnd() string { return jsonEventEnd }

// isReproducible reports whether a record is what appendEvent writes for this event.
func (jsonEncoding) isReproducible(record []byte, ev Event) bool {
	head := len(jsonEventType) + len(ev.Kind) + len(jsonEventObject)
	return len(record) == head+len(ev.Object)+len(jsonEventEnd) &&
		string(record[:head]) == jsonEventType+ev.Kind+jsonEventObject && bytes.HasSuffix(record, []byte(jsonEventEnd))
}

// Revise implements Encoding.
func (jsonEncoding) Revise(item []byte, revision uint64) (before, instead, after []byte, err error) {
	from, to := -1, -1
	err = members(item, func(key string, metadata []byte) error {
		if key != "metadata" {
			return nil
		}
		return members(metadata, func(key string, value []byte) error {
			if key == "resourceVersion" {
				from = offset(item, value)
				to = from + len(value)
			}
			return nil
		})
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if from < 0 {
		return nil, nil, nil, fmt.Errorf("%w: an object without resourceVersion", errShape)
	}
	return item[:from], strconv.AppendQuote(nil, strconv.FormatUint(revision, 10)), item[to:], nil
}
