"""Film reviews of a class, by the text networks that come along: guidance beside weighted samples, and a judge."""

import truetilt as tt

nets = tt.load("tiny-reviews")  # no download
model = nets.model("positive")
guided = tt.Guided(model.process, model.base, model.conditional, beta=3.0)
targets = {
    "guidance of strength 3": tt.Unweighted(model, guided),
    "truetilt, p0(x) p(positive | x)^3": tt.Tilted(model, alpha=3.0),
}
for name, target in targets.items():
    result = tt.run(target, tt.uniform_grid(16), particles=2, populations=4, seed=0)
    texts = nets.decode(result.draw(8))
    sure = nets.judge(texts).exp()[:, nets.classes.index("positive")]
    print(f"{name}: {result.trust().verdict}; the judge says positive with {sure.mean():.0%}")
    for text in sorted(set(texts))[:4]:
        print("  ", text)
