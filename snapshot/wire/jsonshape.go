package wire

import (
	"bytes"
	"fmt"
	"strconv"
)

// kube-apiserver writes lists in JSON in two shapes:
//
//	structShape, for built-in types    {"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[…]}
//	sortedShape, for custom resources  {"apiVersion":"x/v1","items":[…],"kind":"XList","metadata":{"continue":"",…}}
//
// strconv.AppendQuote quotes printable ASCII as kube-apiserver does, except for <, > and &. A kind, version, token or selector
// with one of these three, or with a character that is not printable ASCII, gives other bytes than the upstream's, and
// LearnEnvelope refuses the list.
type (
	structShape struct{ jsonItems }
	sortedShape struct{ jsonItems }
)

// jsonItems has the methods that both shapes share.
type jsonItems struct{}

// separator implements shape.
func (jsonItems) separator() string { return "," }

// appendItemHead implements shape. In JSON nothing but the separator comes before an item, and the caller writes it.
func (jsonItems) appendItemHead(dst []byte, _ int) []byte { return dst }

// shapes implements Encoding.
func (jsonEncoding) shapes() []shape { return []shape{structShape{}, sortedShape{}} }

// appendHead implements shape. n is the number of items.
func (structShape) appendHead(dst []byte, e *Envelope, meta ListMeta, n, _ int) []byte {
	dst = append(dst, `{"kind":`...)
	dst = strconv.AppendQuote(dst, e.kind)
	dst = append(dst, `,"apiVersion":`...)
	dst = strconv.AppendQuote(dst, e.APIVersion)
	dst = append(dst, `,"metadata":{"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, meta.Revision, 10)
	dst = append(dst, '"')
	if meta.Continue != "" {
		dst = append(dst, `,"continue":`...)
		dst = strconv.AppendQuote(dst, meta.Continue)
	}
	if meta.Remaining != 0 {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, meta.Remaining, 10)
	}
	if meta.Shards != "" {
		dst = append(dst, `,"shardInfo":{"selector":`...)
		dst = strconv.AppendQuote(dst, meta.Shards)
		dst = append(dst, '}')
	}
	return appendItemsHead(append(dst, '}'), e, n)
}

// appendTail implements shape.
func (structShape) appendTail(dst []byte, _ *Envelope, _ ListMeta, n int) []byte {
	if n > 0 {
		dst = append(dst, ']')
	}
	return append(dst, "}\n"...)
}

// appendHead implements shape. n is the number of items.
func (sortedShape) appendHead(dst []byte, e *Envelope, _ ListMeta, n, _ int) []byte {
	dst = append(dst, `{"apiVersion":`...)
	dst = strconv.AppendQuote(dst, e.APIVersion)
	return appendItemsHead(dst, e, n)
}

// appendTail implements shape. It writes no shardInfo, so LearnEnvelope refuses a list of custom resources with shardInfo.
func (sortedShape) appendTail(dst []byte, e *Envelope, meta ListMeta, n int) []byte {
	if n > 0 {
		dst = append(dst, ']')
	}
	dst = append(dst, `,"kind":`...)
	dst = strconv.AppendQuote(dst, e.kind)
	dst = append(dst, `,"metadata":{"continue":`...)
	dst = strconv.AppendQuote(dst, meta.Continue)
	if meta.Remaining != 0 {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, meta.Remaining, 10)
	}
	dst = append(dst, `,"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, meta.Revision, 10)
	return append(dst, "\"}}\n"...)
}

// appendItemsHead appends the key "items" and what comes before the first of n items: the opening bracket. If n is 0, it
// appends the key and the whole value.
func appendItemsHead(dst []byte, e *Envelope, n int) []byte {
	dst = append(dst, `,"items":`...)
	if n == 0 {
		return append(dst, e.EmptyItems...)
	}
	return append(dst, '[')
}

// The parts of an event around its type and its object: {"type":"ADDED","object":{…}} and a line break.
const (
	jsonEventType   = `{"type":"`
	jsonEventObject = `","object":`
	jsonEventEnd    = "}\n"
)

// appendEventHead implements Encoding. form.lead is JSON that events have behind an object's opening brace, and lists have not.
// With such a lead, the head has the brace, too. The caller must then skip the item's own brace.
func (jsonEncoding) appendEventHead(dst []byte, eventType string, form ItemForm, _ int) (out []byte, skip int) {
	dst = append(dst, jsonEventType...)
	dst = append(dst, eventType...)
	dst = append(dst, jsonEventObject...)
	if form.lead == "" {
		return dst, 0
	}
	const brace = "{"
	dst = append(dst, brace...)
	return append(dst, form.lead...), len(brace)
}

// eventEnd implements Encoding.
func (jsonEncoding) eventEnd() string { return jsonEventEnd }

// isReproducible reports whether AppendEvent would write ev with the same bytes as record, from which ev was parsed.
func (jsonEncoding) isReproducible(record []byte, ev Event) bool {
	head := jsonEventType + ev.Type + jsonEventObject
	return len(record) == len(head)+len(ev.Object)+len(jsonEventEnd) &&
		bytes.HasPrefix(record, []byte(head)) && bytes.HasSuffix(record, []byte(jsonEventEnd))
}

// Revise implements Encoding.
func (jsonEncoding) Revise(item []byte, revision uint64) (before, revised, after []byte, err error) {
	begin, end, err := findRevision(item)
	if err != nil {
		return nil, nil, nil, err
	}
	return item[:begin], strconv.AppendQuote(nil, strconv.FormatUint(revision, 10)), item[end:], nil
}

// findRevision returns where the value of metadata.resourceVersion begins and ends in an object. The quotation marks are a
// part of the value.
func findRevision(object []byte) (begin, end int, err error) {
	s := jsonScanner{text: object}
	readMetadataMember := func(key []byte) error {
		value, err := s.value()
		if string(key) == "resourceVersion" {
			end = s.at
			begin = end - len(value)
		}
		return err
	}
	err = s.object(func(key []byte) error {
		if string(key) != "metadata" {
			return s.skip()
		}
		return s.object(readMetadataMember)
	})
	if err == nil && end == 0 {
		err = fmt.Errorf("%w: an object without resourceVersion", errShape)
	}
	return begin, end, err
}
