package gzip

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// TestCompressedIsChecked: what is kept compressed is found to be another one, whatever is wrong.
func TestCompressedIsChecked(t *testing.T) {
	const n = 400
	for _, tt := range []struct {
		name   string
		change func(c *Compressor, frame *wire.Frame, objects []*index.Object)
		want   string
	}{
		{"nothing", func(*Compressor, *wire.Frame, []*index.Object) {}, ""},
		{"a segment is damaged", func(c *Compressor, frame *wire.Frame, objects []*index.Object) {
			s := c.segment(writing{frame: frame}, objects[:segmentLength(objects)], beginsList)
			s.deflated[len(s.deflated)/2] ^= 0x10
		}, "after its compression"},
		{"a checksum", func(c *Compressor, frame *wire.Frame, objects []*index.Object) {
			c.segment(writing{frame: frame}, objects[:segmentLength(objects)], beginsList).crc++
		}, "cannot be read after its compression: gzip: invalid checksum"},
		{"a segment has the version before", func(_ *Compressor, _ *wire.Frame, objects []*index.Object) {
			o := *objects[3]
			o.Bytes = append([]byte{'{', ' '}, o.Bytes[1:]...)
			objects[3] = &o
		}, "ns/object-000003 has other bytes after its compression"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newTestCompressor(t, 8<<20)
			objects := someObjects(1, n, 1<<10)
			compressed(t, c, objects)
			c.segments.Wait()
			frame := wire.FixedFrame("PodList", "v1")
			tt.change(c, frame, objects)
			got := strings.Join(c.Check(frame, objects), "; ")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
